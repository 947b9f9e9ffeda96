"""What an administrator does to a broker while workers run: settings of a topic, rights, records, partitions, offsets."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from infra.kafka.connection import KafkaConnection
from infra.local.apache_kafka import tool_command
from infra.local.processes import Server, ServerSpec

TOOL_WITHIN_S: Final = 60.0
NOBODY: Final = "User:ANONYMOUS"  # who everybody is on a listener without a sign-in


@asynccontextmanager
async def administration(connection: KafkaConnection) -> AsyncGenerator[Any]:
    """The client's administration."""
    client = AIOKafkaAdminClient(**connection.client_options(), request_timeout_ms=20_000)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


async def set_topic(connection: KafkaConnection, topic: str, **settings: str) -> None:
    """Change a topic's settings, their dots written as underscores."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    async with administration(connection) as admin:
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=named)])


async def deny_writing(connection: KafkaConnection, topic: str, *, logs: Path) -> None:
    """Let nobody write to a topic."""
    await _acl(connection, "--add", topic, logs)


async def allow_writing(connection: KafkaConnection, topic: str, *, logs: Path) -> None:
    """Undo `deny_writing`."""
    await _acl(connection, "--remove", topic, logs, "--force")


async def _acl(connection: KafkaConnection, verb: str, topic: str, logs: Path, *more: str) -> None:
    what = ("--deny-principal", NOBODY, "--operation", "Write", "--topic", topic)
    await run_tool("org.apache.kafka.tools.AclCommand", "--bootstrap-server", connection.bootstrap, verb, *what, *more, logs=logs)


async def run_tool(tool: str, *arguments: str, logs: Path) -> None:
    """Run one of Kafka's own tools.

    Raises:
        ConfigError: It failed; the last line of its log says why.
    """
    command = tool_command(tool, *arguments)
    spec = ServerSpec(name=tool, command=command, log_path=logs / "kafka-tools.log", start_timeout_s=TOOL_WITHIN_S)
    await Server(spec).run_to_end()
