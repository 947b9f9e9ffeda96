"""What the conductor asks of the broker itself: topics, positions, ends. Directly, past the proxy."""

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

from infra.kafka.connection import KafkaConnection
from topics.errors import OutageError, TimedOutError

SHOWN_WITHIN_S = 20.0


class Cluster:
    """The broker's administration. Every call may raise OutageError while the broker is away."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        self._admin: Any = None

    @asynccontextmanager
    async def open(self) -> "AsyncGenerator[Cluster]":
        """Connect, and close again."""
        self._admin = AIOKafkaAdminClient(**self._connection.client_options(), request_timeout_ms=10_000)
        await self._admin.start()
        try:
            yield self
        finally:
            await self._admin.close()

    async def create(self, topics: dict[str, int]) -> None:
        """Create topics with so many partitions, and wait until they show."""
        await self._admin.create_topics([NewTopic(name, partitions, 1) for name, partitions in topics.items()])
        with anyio.move_on_after(SHOWN_WITHIN_S):
            while True:
                shown = {one["topic"] for one in await self._admin.describe_topics(list(topics)) if not one["error_code"]}
                if shown >= topics.keys():
                    return
                await anyio.sleep(0.1)
        raise TimedOutError("the topics of a run do not show")

    async def delete(self, topics: Iterable[str]) -> None:
        """Delete topics."""
        try:
            await self._admin.delete_topics(list(topics))
        except KafkaError as error:
            raise OutageError("topics are not deleted") from error

    async def positions(self, group: str) -> dict[str, int]:
        """Partition -> what the group has committed; without those that it never committed."""
        try:
            offsets = await self._admin.list_consumer_group_offsets(group)
        except (KafkaError, OSError) as error:
            raise OutageError("the broker tells no positions") from error
        return {f"{one.topic}/{one.partition}": found.offset for one, found in offsets.items() if found.offset >= 0}

    async def ends(self, topic: str) -> dict[str, int]:
        """Partition -> the position behind its last record."""
        client: Any = AIOKafkaConsumer(topic, **self._connection.client_options(), enable_auto_commit=False)
        try:
            await client.start()
            found = await client.end_offsets(client.assignment())
        except KafkaError as error:
            raise OutageError("the broker tells no ends") from error
        finally:
            await client.stop()
        return {f"{one.topic}/{one.partition}": end for one, end in found.items()}
