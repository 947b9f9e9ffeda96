"""TCP ports on the loopback interface."""

import secrets
import socket
from typing import Final

from topics.errors import ConfigError

HOST: Final = "127.0.0.1"

# Below the range systems take outgoing ports from: a client socket cannot take a server's port while it restarts.
_FIRST: Final = 20_000
_COUNT: Final = 12_000
_TRIES: Final = 100

# A port is free until its server listens; two servers of one start must not be given the same.
_given: set[int] = set()


def free_port() -> int:
    """A port that nobody listens on now, and that this process was not given before.

    Raises:
        ConfigError: None of 100 tries was free.
    """
    for _ in range(_TRIES):
        port = _FIRST + secrets.randbelow(_COUNT)
        if port not in _given and _is_free(port):
            _given.add(port)
            return port
    raise ConfigError(f"no free port between {_FIRST} and {_FIRST + _COUNT} on {HOST}")


def port_or_free(port: int | None, *, setting: str) -> int:
    """The port that was asked for, or a free one.

    Raises:
        ConfigError: Somebody listens on it, or we may not. `setting` is named, so that it can be changed.
    """
    if port is None:
        return free_port()
    if not _is_free(port):
        raise ConfigError(f"port {port} is taken or not allowed: choose another {setting}, or leave it out for a free one")
    return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: connections of the last owner that linger are no hindrance.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True
