"""How far groups are behind, as the broker knows it: over connections of its own, so that a wedged consumer cannot hide it."""

from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as ClientPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from infra.kafka.connection import KafkaConnection
from topics.errors import OutageError

LOOK_WITHIN_S: Final = 5.0

TopicPartition = tuple[str, int]


class LagReader:
    """Asks for ends and committed positions."""

    def __init__(self, admin: Any, reader: Any) -> None:
        self._admin = admin
        self._reader = reader

    async def look(self, group: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Records of each partition that the group has not committed. One that it never committed is left out.

        Raises:
            OutageError: The broker does not answer within `LOOK_WITHIN_S`.
        """
        asked = [ClientPartition(*partition) for partition in partitions]
        try:
            with anyio.fail_after(LOOK_WITHIN_S):
                committed: dict[Any, Any] = await self._admin.list_consumer_group_offsets(group)
                ends: dict[Any, int] = await self._reader.end_offsets(asked) if asked else {}
        except (KafkaError, TimeoutError, OSError) as error:
            raise OutageError(f"the broker does not answer: {type(error).__name__}") from error
        known = {one: found.offset for one, found in committed.items() if found.offset >= 0}
        return {(one.topic, one.partition): max(end - known[one], 0) for one, end in ends.items() if one in known}


@asynccontextmanager
async def lag_reader(connection: KafkaConnection) -> AsyncGenerator[LagReader]:
    """A reader that belongs to no group and reads no record.

    Raises:
        ConfigError: The cluster cannot be reached.
    """
    admin = AIOKafkaAdminClient(**connection.client_options(), request_timeout_ms=int(LOOK_WITHIN_S * 1000))
    reader: Any = AIOKafkaConsumer(**connection.client_options(), enable_auto_commit=False)
    try:
        with connection.connecting():
            await admin.start()
            await reader.start()
        yield LagReader(admin, reader)
    finally:
        with anyio.move_on_after(LOOK_WITHIN_S, shield=True):
            await reader.stop()
        with anyio.move_on_after(LOOK_WITHIN_S, shield=True):
            await admin.close()
