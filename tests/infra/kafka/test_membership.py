"""A member of a group on Apache Kafka: where it begins, what it must not lose, and what it must not set back."""

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.consumer.fetcher import PartitionRecords
from aiokafka.errors import CorruptRecordException, RequestTimedOutError
from aiokafka.protocol.admin import DeleteGroupsRequest

from infra.kafka.connection import KafkaConnection
from infra.kafka.consumer import GroupConsumer
from infra.kafka.publisher import raw_producer
from tests.fakes.positions import MemoryPositions
from topics.errors import HaltError, OutageError
from topics.records import OutboundRecord, RawRecord

# On Tansu each join takes seconds, positions do not last, and what is out of range looks like nothing new.
pytestmark = pytest.mark.parametrize("broker", ["apache-kafka"], indirect=True)

CODECS = ("gzip", "snappy", "lz4", "zstd")


class Watching:
    """A listener that knows what it was given."""

    def __init__(self) -> None:
        self.partitions: set[tuple[str, int]] = set()

    async def on_revoked(self, partitions: Any) -> None:
        self.partitions -= set(partitions)

    async def on_assigned(self, partitions: Any) -> None:
        self.partitions = set(partitions)


@asynccontextmanager
async def admin_of(connection: KafkaConnection) -> AsyncGenerator[Any]:
    admin = AIOKafkaAdminClient(bootstrap_servers=connection.bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


@asynccontextmanager
async def member(connection: KafkaConnection, group: str, topic: str, **more: Any) -> AsyncGenerator[GroupConsumer]:
    consumer = GroupConsumer(connection, group=group, topics=[topic], **more)
    await consumer.start(Watching())
    try:
        yield consumer
    finally:
        await consumer.stop()


async def polled_until(consumer: GroupConsumer, condition: Callable[[], bool], *, within_s: float = 60) -> list[RawRecord]:
    taken: list[RawRecord] = []
    with anyio.fail_after(within_s):
        while not condition():
            taken += [one for records in (await consumer.poll(set())).values() for one in records]
    return taken


async def write(connection: KafkaConnection, topic: str, *keys: str, partition: int = 0) -> None:
    async with AIOKafkaProducer(bootstrap_servers=connection.bootstrap) as producer:
        for key in keys:
            await producer.send_and_wait(topic, b"x", key=key.encode(), partition=partition)


async def committed(connection: KafkaConnection, group: str, topic: str, partition: int = 0) -> int | None:
    client = AIOKafkaConsumer(bootstrap_servers=connection.bootstrap, group_id=group)
    async with client:
        client.assign([TopicPartition(topic, partition)])
        return await client.committed(TopicPartition(topic, partition))


async def set_position(connection: KafkaConnection, group: str, topic: str, position: int) -> None:
    client = AIOKafkaConsumer(bootstrap_servers=connection.bootstrap, group_id=group, enable_auto_commit=False)
    async with client:
        client.assign([TopicPartition(topic, 0)])
        await client.commit({TopicPartition(topic, 0): position})


async def made(connection: KafkaConnection, topic: str, *, partitions: int, **configs: str) -> str:
    admin = AIOKafkaAdminClient(bootstrap_servers=connection.bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=configs)])
    for _ in range(100):
        if all(len(one["partitions"]) == partitions for one in await admin.describe_topics([topic])):
            break
        await anyio.sleep(0.05)
    await admin.close()
    return topic


async def polled(consumer: GroupConsumer, count: int) -> list[RawRecord]:
    """Take records, and commit them, until there are `count`."""
    taken: list[RawRecord] = []
    with anyio.fail_after(30):
        while len(taken) < count:
            batches = await consumer.poll(set())
            taken += [one for records in batches.values() for one in records]
            await consumer.commit({partition: records[-1].offset + 1 for partition, records in batches.items()})
    return taken


async def test_a_group_reads_from_its_rule_and_later_from_its_commits(connection: KafkaConnection, prefix: str):
    topic = await made(connection, f"{prefix}t", partitions=2)
    async with raw_producer(connection) as producer:
        for n in range(10):
            await producer.write(OutboundRecord(topic, b"%d" % n, b"x"))
        listener = Watching()
        consumer = GroupConsumer(connection, group=f"{prefix}g", topics=[topic])
        await consumer.start(listener)
        assert len(await polled(consumer, 10)) == 10
        assert listener.partitions == {(topic, 0), (topic, 1)}
        await consumer.stop()
        await producer.write(OutboundRecord(topic, b"new", b"new"))
        again = GroupConsumer(connection, group=f"{prefix}g", topics=[topic], new_group_reads_from="latest")
        await again.start(Watching())
        assert [one.key for one in await polled(again, 1)] == [b"new"]
        await again.stop()


async def test_a_group_that_begins_at_the_end_skips_nothing_when_it_starts_again(connection: KafkaConnection, prefix: str):
    topic = await made(connection, f"{prefix}t", partitions=1)
    async with raw_producer(connection) as producer:
        await producer.write(OutboundRecord(topic, b"old", b"x"))
        first = GroupConsumer(connection, group=f"{prefix}g", topics=[topic], new_group_reads_from="latest")
        await first.start(Watching())
        with anyio.fail_after(20):
            while await first._client.committed(TopicPartition(topic, 0)) is None:
                await first.poll(set())
        await first.stop()
        await producer.write(OutboundRecord(topic, b"while away", b"x"))
    again = GroupConsumer(connection, group=f"{prefix}g", topics=[topic], new_group_reads_from="latest")
    await again.start(Watching())
    assert [one.key for one in await polled(again, 1)] == [b"while away"]
    await again.stop()


async def test_every_codec_of_a_topic_or_a_producer_is_read(connection: KafkaConnection, prefix: str):
    """Case 6."""
    topics = [await made(connection, f"{prefix}{name}", partitions=1, **{"compression.type": name}) for name in CODECS]
    topic = await made(connection, f"{prefix}plain", partitions=1)
    async with raw_producer(connection) as producer:
        for one in topics:
            await producer.write(OutboundRecord(one, b"k", b"x" * 2000))
    for name in CODECS:
        async with AIOKafkaProducer(bootstrap_servers=connection.bootstrap, compression_type=name) as producer:
            await producer.send_and_wait(topic, b"x" * 2000)
    consumer = GroupConsumer(connection, group=f"{prefix}g", topics=[*topics, topic])
    await consumer.start(Watching())
    assert {one.value for one in await polled(consumer, 2 * len(CODECS))} == {b"x" * 2000}
    await consumer.stop()


async def forget_group(connection: KafkaConnection, group: str) -> None:
    """What expiry does, and a restored cluster: the group is there no more."""
    async with admin_of(connection) as admin:
        response = await admin._send_request(DeleteGroupsRequest([group]), await admin.find_coordinator(group))
        assert response.results == [(group, 0)]


async def remake(connection: KafkaConnection, topic: str) -> None:
    async with admin_of(connection) as admin:
        await admin.delete_topics([topic])
        with anyio.fail_after(30):
            while topic in await admin.list_topics():
                await anyio.sleep(0.05)
    await made(connection, topic, partitions=1)


@pytest.mark.parametrize(
    "lose", [lambda connection, group, _: forget_group(connection, group), lambda connection, _, topic: remake(connection, topic)]
)
@pytest.mark.parametrize("rule", ["earliest", "latest"])
async def test_a_group_whose_position_was_lost_is_not_taken_for_a_new_one(
    connection: KafkaConnection, prefix: str, lose: Callable[..., Any], rule: Any
):
    """War story 19: expired or deleted offsets, or a topic that is made anew, must neither skip nor repeat a topic in silence."""
    topic, group, memory = await made(connection, f"{prefix}t", partitions=1), f"{prefix}g", MemoryPositions()
    await write(connection, topic, "a", "b")
    async with member(connection, group, topic, memory=memory) as consumer:
        await polled(consumer, 2)
        await polled_until(consumer, lambda: memory.committed == {(topic, 0)})
    await lose(connection, group, topic)
    await write(connection, topic, "c")
    async with member(connection, group, topic, memory=memory, new_group_reads_from=rule) as consumer:
        with pytest.raises(HaltError, match="sluice offsets set") as caught:
            await polled(consumer, 1)
    assert caught.value.reason_code == "offset_lost"
    assert await committed(connection, group, topic) is None, "nothing was begun"


async def test_a_group_that_is_older_than_its_memory_is_known_by_what_the_broker_tells(connection: KafkaConnection, prefix: str):
    topic, group, memory = await made(connection, f"{prefix}t", partitions=1), f"{prefix}g", MemoryPositions()
    await set_position(connection, group, topic, 0)
    async with member(connection, group, topic, memory=memory) as consumer:
        await polled_until(consumer, lambda: memory.committed == {(topic, 0)})


@pytest.mark.parametrize(("position", "says"), [(99, "ends at 2"), (0, "deleted before they were read")])
async def test_a_position_outside_the_log_stops_the_worker(connection: KafkaConnection, prefix: str, position: int, says: str):
    """War story 20: beyond the end it would wait for ever, before the beginning it would skip, and say nothing."""
    topic, group = await made(connection, f"{prefix}t", partitions=1), f"{prefix}g"
    await write(connection, topic, "a", "b")
    await set_position(connection, group, topic, position)
    async with admin_of(connection) as admin:
        await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(1)})
    async with member(connection, group, topic) as consumer:
        with pytest.raises(HaltError, match=says) as caught:
            await polled(consumer, 1)
    assert caught.value.reason_code == "offset_out_of_range"
    assert await committed(connection, group, topic) == position


async def test_nothing_is_missed_on_a_partition_that_is_added_while_the_group_reads_from_the_end(
    connection: KafkaConnection, prefix: str
):
    """Case 13: records that are written before anybody has seen the partition are read."""
    topic, group, memory = await made(connection, f"{prefix}t", partitions=1), f"{prefix}g", MemoryPositions()
    async with member(connection, group, topic, memory=memory, new_group_reads_from="latest") as consumer:
        await polled_until(consumer, lambda: memory.committed == {(topic, 0)})
        async with admin_of(connection) as admin:
            await admin.create_partitions({topic: NewPartitions(2)})
        await write(connection, topic, "unseen 1", "unseen 2", partition=1)
        await consumer._client._client.force_metadata_update()
        taken = await polled(consumer, 2)
    assert [(one.partition, one.key) for one in taken] == [(1, b"unseen 1"), (1, b"unseen 2")]


async def test_a_deleted_topic_is_an_outage_and_not_silence(connection: KafkaConnection, prefix: str):
    topic = await made(connection, f"{prefix}t", partitions=1)
    async with member(connection, f"{prefix}g", topic) as consumer:
        await write(connection, topic, "a")
        await polled(consumer, 1)
        async with admin_of(connection) as admin:
            await admin.delete_topics([topic])
        with pytest.raises(OutageError, match="topics apply"):
            await polled_until(consumer, lambda: False)


async def test_what_transactions_leave_behind_counts_as_read(connection: KafkaConnection, prefix: str):
    """Case 7: a log that ends in markers, or holds nothing else, has no lag."""
    topic, group = await made(connection, f"{prefix}t", partitions=2), f"{prefix}g"
    async with AIOKafkaProducer(bootstrap_servers=connection.bootstrap, transactional_id=topic) as producer:
        for partition, value, is_kept in ((0, b"evt-1", True), (0, b"evt-2", False), (1, b"evt-3", False)):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, value, partition=partition)
            await (producer.commit_transaction() if is_kept else producer.abort_transaction())
    async with member(connection, group, topic) as consumer:
        taken = await polled_until(consumer, lambda: consumer.reached() == {(topic, 0): 4, (topic, 1): 2})
    assert [one.value for one in taken] == [b"evt-1"]


async def test_a_broken_batch_takes_no_other_record_with_it(
    connection: KafkaConnection, prefix: str, monkeypatch: pytest.MonkeyPatch
):
    """P1: the client goes on behind what it unpacked of other partitions before, and never gives it out."""
    topic = await made(connection, f"{prefix}t", partitions=2)
    for partition in (0, 1):
        await write(connection, topic, *(f"{partition}-{n}" for n in range(5)), partition=partition)
    whole, unpacked, broken = PartitionRecords._unpack_records, [], []

    def breaking(self: Any) -> Generator[Any]:
        for record in whole(self):
            if unpacked and not broken and record.partition != unpacked[0]:
                broken.append(record.partition)
                raise CorruptRecordException("Invalid CRC")
            unpacked.append(record.partition)
            yield record

    monkeypatch.setattr(PartitionRecords, "_unpack_records", breaking)
    taken: list[RawRecord] = []
    async with member(connection, f"{prefix}g", topic) as consumer:
        with anyio.fail_after(30):
            while len(taken) < 10:
                try:
                    taken += [one for records in (await consumer.poll(set())).values() for one in records]
                except OutageError:
                    continue
    assert broken
    assert sorted(one.key or b"" for one in taken) == sorted(f"{partition}-{n}".encode() for partition in (0, 1) for n in range(5))


async def test_a_commit_that_is_repeated_after_a_rebalance_sets_nobody_back(connection: KafkaConnection, prefix: str):
    """War story 12: the first try fails in a rebalance, and the client repeats it as a member of the next generation."""
    topic, group = await made(connection, f"{prefix}t", partitions=1), f"{prefix}g"
    await write(connection, topic, *"abcdefgh")
    async with member(connection, group, topic) as slow:
        await polled_until(slow, lambda: slow.reached() == {(topic, 0): 8})
        coordinator, may_fail = slow._client._coordinator, anyio.Event()
        send = coordinator._do_commit_offsets
        tries = 0

        async def failing_once(assignment: Any, offsets: Any) -> None:
            nonlocal tries
            tries += 1
            if tries == 1:
                await may_fail.wait()
                raise RequestTimedOutError
            await send(assignment, offsets)

        coordinator._do_commit_offsets = failing_once
        generation = coordinator.generation
        answers: list[bool] = []

        async def commit() -> None:
            answers.append(await slow.commit({(topic, 0): 3}))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(commit)
            with anyio.fail_after(10):
                while not tries:
                    await anyio.sleep(0.01)
            async with member(connection, group, topic), anyio.create_task_group() as polling:
                polling.start_soon(polled_until, slow, lambda: coordinator.generation > generation)
            may_fail.set()
            with anyio.fail_after(30):
                while not await slow.commit({(topic, 0): 8}):  # refused while the group rebalances once more
                    await slow.poll(set())
        assert answers == [False]
        assert await committed(connection, group, topic) == 8
