"""Topics outside any group: all that they hold now, or all that comes from now on."""

import anyio
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from infra.kafka.connection import KafkaConnection
from infra.kafka.publisher import raw_producer
from infra.kafka.reading import follow, scan
from infra.local.ports import free_port
from topics.errors import ConfigError
from topics.records import OutboundRecord


@pytest.fixture
async def topics(connection: KafkaConnection, prefix: str) -> list[str]:
    """One with records, one without."""
    names = [f"{prefix}full", f"{prefix}empty"]
    admin = AIOKafkaAdminClient(bootstrap_servers=connection.bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(name, 3, 1) for name in names])
    for _ in range(100):
        if all(len(topic["partitions"]) == 3 for topic in await admin.describe_topics(names)):
            break
        await anyio.sleep(0.05)
    await admin.close()
    return names


async def test_a_scan_ends_and_gives_everything_once_in_order_byte_for_byte(connection: KafkaConnection, topics: list[str]):
    sent = [
        OutboundRecord(
            topics[0], b"%d" % (n % 7) if n % 5 else None, None if n % 3 == 0 else b"\xff%d" % n, (("a", b"%d" % n), ("a", None))
        )
        for n in range(200)
    ]
    async with raw_producer(connection) as producer:
        for record in sent:
            await producer.write(record)
    with anyio.fail_after(20):
        async with scan(connection, topics) as records:
            read = [record async for record in records]
    by_headers = {record.headers: record for record in read}
    assert len(read) == len(by_headers) == len(sent)
    for record in sent:
        assert (by_headers[record.headers].key, by_headers[record.headers].value) == (record.key, record.value)
    for partition in range(3):
        offsets = [record.offset for record in read if record.partition == partition]
        assert offsets == sorted(offsets)


async def test_an_empty_topic_is_read_at_once(connection: KafkaConnection, topics: list[str]):
    with anyio.fail_after(10):
        async with scan(connection, topics[1:]) as records:
            assert [record async for record in records] == []


async def test_following_gives_what_comes_and_nothing_older(connection: KafkaConnection, topics: list[str]):
    async with raw_producer(connection) as producer:
        await producer.write(OutboundRecord(topics[0], b"old", b"old"))
        async with follow(connection, topics) as records:
            for n in range(9):
                await producer.write(OutboundRecord(topics[n % 2], b"%d" % n, b"new"))
            with anyio.fail_after(10):
                values = [(await anext(records)).value for _ in range(9)]
    assert values == [b"new"] * 9


@pytest.mark.parametrize("broker", ["apache-kafka"], indirect=True)
async def test_transaction_markers_and_aborted_records_end_a_scan_and_are_not_given(connection: KafkaConnection, topics: list[str]):
    """Case 7: the last position may be a marker that no client is ever handed."""
    producer = AIOKafkaProducer(bootstrap_servers=connection.bootstrap, transactional_id=topics[0])
    async with producer:
        for topic, value, is_kept in ((topics[0], b"kept", True), (topics[0], b"dropped", False), (topics[1], b"dropped", False)):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, value, partition=0)
            await (producer.commit_transaction() if is_kept else producer.abort_transaction())
    with anyio.fail_after(10):
        async with scan(connection, topics) as records:
            assert [record.value async for record in records] == [b"kept"]


@pytest.mark.parametrize("broker", ["apache-kafka"], indirect=True)  # Tansu makes whatever is asked about
@pytest.mark.parametrize("read", [scan, follow])
async def test_a_missing_topic_is_told_with_its_remedy(read: object, connection: KafkaConnection, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("infra.kafka.reading.READ_WITHIN_MS", 500)
    with anyio.fail_after(10), pytest.raises(ConfigError, match="topics apply"):
        async with read(connection, ["nowhere"]):
            pass


async def test_a_cluster_that_is_not_there_is_one_sentence():
    with pytest.raises(ConfigError, match="cannot be reached"):
        async with scan(KafkaConnection(f"127.0.0.1:{free_port()}"), ["t"]):
            pass
