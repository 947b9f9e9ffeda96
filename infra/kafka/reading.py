"""Read topics outside any consumer group: whole, up to their end of now, or from now on."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Literal

import anyio
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as ClientPartition
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError

from infra.kafka.connection import KafkaConnection
from infra.kafka.consumer import raw_record
from infra.kafka.header_names import read_any_header_name
from topics.errors import ConfigError, OutageError
from topics.records import RawRecord

QUIET_LIMIT_S: Final = 20.0
SHORT_WAIT_MS: Final = 300
READ_WITHIN_MS: Final = 8_000
MAX_EXTRA_POLLS: Final = 20


@asynccontextmanager
async def scan(connection: KafkaConnection, topics: Sequence[str]) -> AsyncGenerator[AsyncGenerator[RawRecord]]:
    """Every record that the topics hold now, each partition in order, and perhaps a few that come meanwhile.

    Raises:
        ConfigError: The cluster cannot be reached, or a topic is missing.
        OutageError: It stopped answering half-way.
    """
    async with _assigned(connection, topics, begin="earliest") as (client, partitions):
        yield _to_the_end(client, partitions)


@asynccontextmanager
async def follow(connection: KafkaConnection, topics: Sequence[str]) -> AsyncGenerator[AsyncGenerator[RawRecord]]:
    """Every record written after this block was entered, for ever."""
    # Not by a seek to the end: one that overtakes the first look-up of positions is lost, and old records come.
    async with _assigned(connection, topics, begin="latest") as (client, partitions):
        for partition in partitions:
            await client.position(partition)  # resolve it now: what is written next must be seen
        yield _from_now_on(client)


async def beginnings(connection: KafkaConnection, topic: str) -> dict[int, int]:
    """The first offset that each partition still has: above 0 where its beginning is gone.

    Raises:
        ConfigError: The cluster cannot be reached, or the topic is missing.
        OutageError: It stopped answering.
    """
    async with _assigned(connection, [topic], begin="earliest") as (client, partitions):
        found: dict[ClientPartition, int] = await client.beginning_offsets(partitions)
        return {partition.partition: offset for partition, offset in found.items()}


async def _to_the_end(client: Any, partitions: list[ClientPartition]) -> AsyncGenerator[RawRecord]:
    ends: dict[ClientPartition, int] = await client.end_offsets(partitions)
    await client.seek_to_beginning(*partitions)
    quiet_s, extra = 0.0, 0
    while True:
        batches = await client.getmany(timeout_ms=SHORT_WAIT_MS)
        for records in batches.values():
            for record in records:
                yield raw_record(record)
        # The position, not the last record: transaction markers and aborted records are never handed out.
        if all([await client.position(partition) >= end for partition, end in ends.items()]):
            # Tansu tells an end that is too low, so the end is believed only once nothing more comes.
            extra += 1
            if not batches or extra > MAX_EXTRA_POLLS:
                return
        quiet_s = 0.0 if batches else quiet_s + SHORT_WAIT_MS / 1000
        if quiet_s > QUIET_LIMIT_S:
            raise OutageError("the broker stopped answering before the end of the topic")


async def _from_now_on(client: Any) -> AsyncGenerator[RawRecord]:
    while True:
        batches = await client.getmany(timeout_ms=500)
        for records in batches.values():
            for record in records:
                yield raw_record(record)


@asynccontextmanager
async def _assigned(
    connection: KafkaConnection, topics: Sequence[str], *, begin: Literal["earliest", "latest"]
) -> AsyncGenerator[tuple[Any, list[ClientPartition]]]:
    client: Any = AIOKafkaConsumer(
        *topics,  # outside a group this assigns every partition of theirs
        **connection.client_options(),
        enable_auto_commit=False,
        auto_offset_reset=begin,
        isolation_level="read_committed",
        request_timeout_ms=READ_WITHIN_MS,  # it also bounds the wait for a topic that is not there
    )
    try:
        with connection.connecting():
            await _start(client, topics)
        yield client, _all_partitions(client, topics)
    except KafkaError as error:
        raise OutageError(f"the broker does not answer: {type(error).__name__}") from error
    finally:
        with anyio.move_on_after(5, shield=True):
            await client.stop()


async def _start(client: Any, topics: Sequence[str]) -> None:
    read_any_header_name()
    try:
        await client.start()
    except UnknownTopicOrPartitionError as error:
        raise _missing(topics) from error


def _all_partitions(client: Any, topics: Sequence[str]) -> list[ClientPartition]:
    partitions: list[ClientPartition] = sorted(client.assignment())
    missing = set(topics) - {partition.topic for partition in partitions}
    if missing:
        raise _missing(missing)
    return partitions


def _missing(topics: Iterable[str]) -> ConfigError:
    return ConfigError(f"not every topic is there ({', '.join(sorted(topics))}): `sluice topics apply` creates them")
