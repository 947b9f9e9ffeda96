"""What only a cluster's own administration tells or does."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from infra.kafka.connection import KafkaConnection


@asynccontextmanager
async def _admin(connection: KafkaConnection) -> AsyncGenerator[Any]:
    client = AIOKafkaAdminClient(**connection.client_options())
    await client.start()
    try:
        yield client
    finally:
        await client.close()


async def delete_topic(connection: KafkaConnection, topic: str) -> None:
    async with _admin(connection) as admin:
        await admin.delete_topics([topic])


async def committed(connection: KafkaConnection, group: str, topic: str, partition: int) -> int | None:
    """The next position that a group would read; None when it never committed."""
    async with _admin(connection) as admin:
        offsets = await admin.list_consumer_group_offsets(group)
    found = offsets.get(TopicPartition(topic, partition))
    return None if found is None else found.offset


async def end_of(connection: KafkaConnection, topic: str, partition: int) -> int:
    """The position behind the last record."""
    client: Any = AIOKafkaConsumer(**connection.client_options())
    await client.start()
    try:
        one = TopicPartition(topic, partition)
        return (await client.end_offsets([one]))[one]
    finally:
        await client.stop()
