"""P10 at the edge: the largest record that an input takes has room on the dead-letter topic, with all that we add to it."""

from dataclasses import replace

import pytest
from aiokafka import AIOKafkaProducer

from infra.kafka import provision
from infra.kafka.connection import KafkaConnection
from infra.kafka.dead_letter import MAX_MESSAGE_BYTES, Death, original_headers
from infra.kafka.publisher import DeadLetterTopic, raw_producer
from infra.kafka.reading import scan
from topics.catalogue import DEAD_LETTERS, QUERIES, Catalogue
from topics.records import OutboundRecord, RawRecord

BROKER_TAKES_BYTES = 1_048_588
FRAMING_BYTES = 300  # of a batch and of the headers below
DEATH = Death(
    group="sluice.query",
    code="bad_json",
    disposition="poison",
    stage="decode",
    message="m" * 10 * MAX_MESSAGE_BYTES,
    exception="MalformedError",
    delivery_count=1,
    first_failed_at_ms=1,
    last_failed_at_ms=2,
    tenant="t" * 200,
)


async def all_of(connection: KafkaConnection, topic: str) -> list[RawRecord]:
    async with scan(connection, [topic]) as records:
        return [record async for record in records]


async def test_the_largest_input_is_buried_to_the_byte(connection: KafkaConnection, prefix: str):
    catalogue = Catalogue(prefix)
    await provision.apply(connection, catalogue, replication_factor=1)
    value = b"\xff" * (BROKER_TAKES_BYTES - FRAMING_BYTES)
    sent = OutboundRecord(catalogue.name(QUERIES), b"acme/t", value, (("x", b"1"), ("x", None), ("y", b"\x00" * 100)))
    async with raw_producer(connection) as producer:
        await producer.write(sent)
        (record,) = await all_of(connection, sent.topic)
        letters = catalogue.name(DEAD_LETTERS)
        await DeadLetterTopic(producer, topic=letters).bury(record, DEATH)
        (letter,) = await all_of(connection, letters)
    assert (letter.key, letter.value, original_headers(letter.headers)) == (sent.key, value, sent.headers)


async def test_and_its_replay_goes_back_and_is_buried_again(connection: KafkaConnection, prefix: str):
    catalogue = Catalogue(prefix)
    await provision.apply(connection, catalogue, replication_factor=1)
    letters, replays = catalogue.name(DEAD_LETTERS), catalogue.replay_name(QUERIES)
    value = b"\xff" * (BROKER_TAKES_BYTES - FRAMING_BYTES)
    first = RawRecord(catalogue.name(QUERIES), 0, 0, b"acme/t", value, (("y", b"\x00" * 100),))
    async with raw_producer(connection) as producer:
        grave = DeadLetterTopic(producer, topic=letters)
        await grave.bury(first, DEATH)
        (letter,) = await all_of(connection, letters)
        await producer.write(OutboundRecord(replays, letter.key, letter.value, letter.headers))
        (replay,) = await all_of(connection, replays)
        await grave.bury(replace(replay), DEATH)
        again = (await all_of(connection, letters))[-1]
    assert (again.value, original_headers(again.headers)) == (value, first.headers)
    assert [name for name, _ in again.headers] == [name for name, _ in letter.headers]


@pytest.mark.parametrize("broker", ["apache-kafka"], indirect=True)  # Tansu takes records of any size
async def test_an_input_that_was_small_only_while_compressed_is_buried(connection: KafkaConnection, prefix: str):
    """P7: a topic's limit is for compressed batches. Its letter was refused, and the whole group stood still behind it."""
    catalogue = Catalogue(prefix)
    await provision.apply(connection, catalogue, replication_factor=1)
    topic, letters = catalogue.name(QUERIES), catalogue.name(DEAD_LETTERS)
    value = b"{" + b" no JSON" * 400_000
    client = AIOKafkaProducer(bootstrap_servers=connection.bootstrap, compression_type="zstd", max_request_size=16_777_216)
    async with client:
        await client.send_and_wait(topic, value, key=b"acme/t")
    (record,) = await all_of(connection, topic)
    async with raw_producer(connection) as producer:
        await DeadLetterTopic(producer, topic=letters).bury(record, DEATH)
    assert [one.value for one in await all_of(connection, letters)] == [value]
