"""P10: the name of a header may be any bytes; its record is read, buried and shown all the same."""

from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from infra.kafka.connection import KafkaConnection
from infra.kafka.consumer import GroupConsumer
from infra.kafka.dead_letter import original_headers
from infra.kafka.header_names import is_odd, shown, with_odd_names, written
from infra.kafka.publisher import DeadLetterTopic, raw_producer
from infra.kafka.reading import scan
from tests.infra.kafka.test_dead_letter import DEATH
from tests.infra.kafka.test_membership import Watching, made, polled
from topics.catalogue import Catalogue
from topics.envelope import decode
from topics.records import RawRecord

LATIN = b"gr\xf6\xdfe".decode("utf-8", "surrogateescape")
NAMES = ["before", LATIN, "größe", "behind"]


async def write(connection: KafkaConnection, topic: str, names: list[str]) -> None:
    """As producers in C, PHP or Go may: one batch, a record for each name."""
    async with AIOKafkaProducer(bootstrap_servers=connection.bootstrap) as producer:
        batch: Any = with_odd_names(producer.create_batch(), size_bytes=100_000)
        for name in names:
            batch.append(timestamp=None, key=b"k", value=b"no JSON", headers=written([(name, b"1")]))
        await (await producer.send_batch(batch, topic, partition=0))


def names_of(records: list[RawRecord]) -> list[str]:
    return [name for record in records for name, _ in original_headers(record.headers)]


@pytest.mark.parametrize("broker", ["apache-kafka"], indirect=True)  # Tansu refuses such a batch
async def test_a_name_that_is_no_utf8_is_read_and_buried_to_the_byte(connection: KafkaConnection, prefix: str):
    """The worker died of it, and again at every start."""
    topic, letters = [await made(connection, prefix + name, partitions=1) for name in ("t", "d")]
    await write(connection, topic, NAMES)
    consumer = GroupConsumer(connection, group=f"{prefix}g", topics=[topic])
    await consumer.start(Watching())
    try:
        records = await polled(consumer, len(NAMES))
    finally:
        await consumer.stop()
    async with raw_producer(connection) as producer:
        for record in records:
            await DeadLetterTopic(producer, topic=letters).bury(record, DEATH)
    async with scan(connection, [letters]) as found:
        buried = [one async for one in found]
    assert names_of(records) == names_of(buried) == NAMES


def test_such_a_record_may_be_fine_otherwise():
    own = (("ce_id", b"1"), ("ce_type", b"query.asked"), ("ce_tenant", b"acme"))
    body = b'{"thread_id":"t","text":"hi"}'
    event = decode(RawRecord("queries", 0, 0, b"acme/t", body, (*own, (LATIN, b"1"))), catalogue=Catalogue())
    assert (event.id, event.tenant) == ("1", "acme")


def test_people_see_such_a_name_escaped():
    assert [is_odd(name) for name in NAMES] == [False, True, False, False]
    assert [shown(name) for name in NAMES] == ["before", r"gr\xf6\xdfe", "größe", "behind"]
