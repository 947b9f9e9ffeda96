"""Writing: records to the byte, and what a broker's refusal means."""

import random
from dataclasses import replace
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from infra.kafka.connection import KafkaConnection
from infra.kafka.dead_letter import ID, REPLAY_ID, original_headers
from infra.kafka.publisher import DeadLetterTopic, EventPublisher, event_broker, raw_producer
from infra.kafka.reading import scan
from infra.local.ports import free_port
from tests.infra.kafka.test_dead_letter import DEATH, RECORD
from topics.errors import ConfigError, OutageError, RejectedError
from topics.records import OutboundRecord, RawRecord

LARGE = random.Random(1).randbytes(1_100_000)  # nothing that packs


@pytest.fixture
async def topic(connection: KafkaConnection, prefix: str) -> str:
    admin = AIOKafkaAdminClient(bootstrap_servers=connection.bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(f"{prefix}t", 1, 1)])
    await admin.close()
    return f"{prefix}t"


async def written(connection: KafkaConnection, topic: str) -> list[RawRecord]:
    async with scan(connection, [topic]) as records:
        return [record async for record in records]


async def test_a_dead_letter_arrives_with_every_byte_null_and_repeat(connection: KafkaConnection, topic: str):
    """P10."""
    letters = [replace(RECORD, key=key, value=value) for key in (None, b"", b"\xff") for value in (None, b"", b"\xff")]
    async with raw_producer(connection) as producer:
        grave = DeadLetterTopic(producer, topic=topic)
        for letter in letters:
            await grave.bury(letter, DEATH)
    found = await written(connection, topic)
    assert [(one.key, one.value) for one in found] == [(letter.key, letter.value) for letter in letters]
    assert all(original_headers(one.headers) == RECORD.headers for one in found)


async def test_an_event_arrives_with_its_headers(connection: KafkaConnection, topic: str):
    record = OutboundRecord(topic, b"acme/t", "ü".encode(), (("ce_id", b"1"), ("ce_subject", "acme/\u05e9".encode())))
    async with event_broker(connection, client_id="test") as broker:
        await (await EventPublisher(broker).send(record))
    (found,) = await written(connection, topic)
    assert (found.key, found.value) == (record.key, record.value)
    assert set(record.headers) <= set(found.headers)


async def test_what_is_too_large_is_rejected_and_as_a_dead_letter_holds_the_offset(connection: KafkaConnection, topic: str):
    """P6: a letter that cannot be written must not let its record be passed over."""
    async with raw_producer(connection) as producer, event_broker(connection, client_id="test") as broker:
        senders = [EventPublisher(broker).send, producer.write]
        for send in senders if connection.idempotent else senders[:1]:  # Tansu takes raw records of any size
            with pytest.raises(RejectedError) as caught:
                await send(OutboundRecord(topic, b"k", LARGE))
            assert caught.value.reason_code == "output_too_large"
        if not connection.idempotent:
            return
        with pytest.raises(OutageError, match=r"max\.message\.bytes"):
            await DeadLetterTopic(producer, topic=topic).bury(replace(RECORD, value=LARGE), DEATH)


@pytest.mark.parametrize("broker", ["apache-kafka"], indirect=True)  # Tansu has no idempotent producer
@pytest.mark.parametrize("kind", ["event", "raw"])
async def test_a_refused_record_does_not_stop_those_behind_it(connection: KafkaConnection, prefix: str, kind: str):
    """P1: until the worker was restarted everything behind it would be out of order, and never written."""
    topic = f"{prefix}small"
    admin = AIOKafkaAdminClient(bootstrap_servers=connection.bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"max.message.bytes": "2000"})])
    await admin.close()
    async with raw_producer(connection) as producer, event_broker(connection, client_id="test") as broker:
        publisher = EventPublisher(broker)

        async def send(value: bytes) -> None:
            record = OutboundRecord(topic, b"k", value)
            await (producer.write(record) if kind == "raw" else await publisher.send(record))

        await send(b"before")
        with pytest.raises(RejectedError):
            await send(LARGE[:5_000])
        if kind == "event":
            with pytest.raises(OutageError, match="OutOfOrderSequenceNumber"):
                await send(b"too early")
        for number in range(3):
            await send(b"%d" % number)
    assert [one.value for one in await written(connection, topic)] == [b"before", b"0", b"1", b"2"]


@pytest.mark.parametrize("connect", [raw_producer, lambda connection: event_broker(connection, client_id="test")])
async def test_a_cluster_that_is_not_there_is_one_sentence(connect: Any):
    with pytest.raises(ConfigError, match="cannot be reached"):
        async with connect(KafkaConnection(f"127.0.0.1:{free_port()}")):
            pass


@pytest.mark.parametrize("value", [b"{}", None])
@pytest.mark.parametrize("name", [REPLAY_ID, ID])
async def test_copies_of_one_dead_letter_without_a_key_lie_in_one_partition(
    connection: KafkaConnection, prefix: str, name: str, value: bytes | None
):
    """P2: of two edits the first counts, and only within a partition is one before another."""
    topics = [f"{prefix}many", f"{prefix}more"]
    admin = AIOKafkaAdminClient(bootstrap_servers=connection.bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 6, 1) for topic in topics])
    await admin.close()
    async with raw_producer(connection) as producer:
        for number in range(8):
            await producer.write(OutboundRecord(topics[0], None, value, ((name, b"letter:1"),)))
            await producer.write(OutboundRecord(topics[1], None, value, ((name, b"letter:%d" % number),)))
    copies, others = [{record.partition for record in await written(connection, topic)} for topic in topics]
    assert len(copies) == 1
    assert len(others) > 1  # or all that has no key waits behind itself
