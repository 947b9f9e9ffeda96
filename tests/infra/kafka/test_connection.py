"""How a cluster is reached: plain, with SASL, with TLS."""

from pathlib import Path

import pytest
from faststream.security import SASLScram512

from infra.kafka.connection import KafkaConnection
from infra.kafka.publisher import security_of
from topics.errors import ConfigError


def test_a_plain_cluster_needs_its_address_only():
    assert KafkaConnection("a:1,b:2").client_options() == {"bootstrap_servers": "a:1,b:2", "security_protocol": "PLAINTEXT"}


@pytest.mark.parametrize(("tls", "protocol"), [(False, "SASL_PLAINTEXT"), (True, "SASL_SSL")])
def test_sasl_goes_to_both_clients(tls: bool, protocol: str):
    connection = KafkaConnection("a:1", tls=tls, mechanism="SCRAM-SHA-512", username="sluice", password="secret")
    options = connection.client_options()
    assert options["security_protocol"] == protocol
    assert [options[f"sasl_{name}"] for name in ("mechanism", "plain_username", "plain_password")] == [
        "SCRAM-SHA-512",
        "sluice",
        "secret",
    ]
    assert ("ssl_context" in options) == tls
    security = security_of(connection)
    assert isinstance(security, SASLScram512)
    assert (security.username, security.password, security.use_ssl) == ("sluice", "secret", tls)


def test_tls_alone_verifies_the_broker():
    connection = KafkaConnection("a:1", tls=True)
    context = connection.client_options()["ssl_context"]
    assert context.check_hostname
    assert security_of(connection).use_ssl


@pytest.mark.parametrize(("username", "password"), [(None, "x"), ("u", None), ("", "x")])
def test_a_mechanism_without_user_or_password_is_a_wrong_setting(username: str | None, password: str | None):
    connection = KafkaConnection("a:1", mechanism="PLAIN", username=username, password=password)
    for ask in (connection.client_options, lambda: security_of(connection)):
        with pytest.raises(ConfigError, match="user or password"):
            ask()


def test_a_certificate_that_cannot_be_read_is_a_wrong_setting(tmp_path: Path):
    broken = tmp_path / "ca.pem"
    broken.write_text("no certificate")
    for connection in (
        KafkaConnection("a:1", tls=True, ca_file=str(tmp_path / "absent.pem")),
        KafkaConnection("a:1", tls=True, ca_file=str(broken)),
        KafkaConnection("a:1", tls=True, cert_file=str(broken)),
    ):
        with pytest.raises(ConfigError, match="TLS files"):
            connection.client_options()
