"""Ports: free ones are free, taken ones are named."""

import socket

import pytest

from infra.local import ports
from topics.errors import ConfigError


def test_a_free_port_can_be_listened_on() -> None:
    with socket.create_server((ports.HOST, ports.free_port())) as server:
        assert server.getsockname()[1] > 0


def test_no_port_is_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_COUNT", 4)
    monkeypatch.setattr(ports, "_given", set())
    monkeypatch.setattr(ports, "_is_free", lambda port: port != ports._FIRST)
    assert len({ports.free_port() for _ in range(3)}) == 3
    with pytest.raises(ConfigError, match="no free port"):
        ports.free_port()


def test_the_port_asked_for_is_the_port_given() -> None:
    port = ports.free_port()
    assert ports.port_or_free(port, setting="redis_port") == port


def test_a_taken_port_is_named_with_its_setting() -> None:
    with socket.create_server((ports.HOST, 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"port {port} is taken .*redis_port"):
            ports.port_or_free(port, setting="redis_port")


def test_a_port_that_lingers_after_a_connection_is_free_again() -> None:
    with socket.create_server((ports.HOST, 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection((ports.HOST, port)):
            accepted, _ = server.accept()
            accepted.close()
    assert ports.port_or_free(port, setting="redis_port") == port
