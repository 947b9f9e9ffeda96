"""How to reach the cluster: addresses, SASL and TLS."""

import ssl
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

import anyio
from aiokafka.errors import KafkaError

from topics.errors import ConfigError

Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]

CONNECT_WITHIN_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class KafkaConnection:
    """Where the brokers are and how to sign in.

    `idempotent` is off only for brokers that don't support idempotent producers.
    """

    bootstrap: str
    tls: bool = False
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    mechanism: Mechanism | None = None
    username: str | None = None
    password: str | None = None
    idempotent: bool = True

    @contextmanager
    def connecting(self) -> Generator[None]:
        """Bound a client's start. Left alone it takes as long as one of its requests may, and fails in several ways.

        Raises:
            ConfigError: The cluster did not answer within 10 s, or refused us, or its address is none.
        """
        try:
            with anyio.fail_after(CONNECT_WITHIN_S):
                yield
        except (KafkaError, OSError, ValueError) as error:
            raise ConfigError(
                f"Kafka at {self.bootstrap} cannot be reached: is it running, and are SLUICE_KAFKA_BOOTSTRAP, user and TLS right?"
            ) from error

    def client_options(self) -> dict[str, Any]:
        """Keyword arguments of every aiokafka client.

        Raises:
            ConfigError: A certificate file cannot be read, or a mechanism has no user.
        """
        options: dict[str, Any] = {"bootstrap_servers": self.bootstrap, "security_protocol": self._protocol()}
        if self.tls:
            options["ssl_context"] = self.ssl_context()
        if self.mechanism:
            user, password = self.credentials()
            options |= {"sasl_mechanism": self.mechanism, "sasl_plain_username": user, "sasl_plain_password": password}
        return options

    def _protocol(self) -> str:
        return ("SASL_" if self.mechanism else "") + ("SSL" if self.tls else "PLAINTEXT")

    def credentials(self) -> tuple[str, str]:
        """User and password.

        Raises:
            ConfigError: One of them is not set.
        """
        if not self.username or self.password is None:
            raise ConfigError("a SASL mechanism is set, but the Kafka user or password is not")
        return self.username, self.password

    def ssl_context(self) -> ssl.SSLContext:
        """What TLS needs.

        Raises:
            ConfigError: A certificate file cannot be read.
        """
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.cert_file:
                context.load_cert_chain(self.cert_file, self.key_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"the Kafka TLS files cannot be read: {error}") from error
        return context
