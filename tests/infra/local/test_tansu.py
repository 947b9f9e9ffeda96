"""The in-memory broker, as a Kafka client sees it."""

import socket
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from infra.local import ports
from infra.local.kafka_probe import missing_from_broker
from infra.local.processes import running
from infra.local.tansu import build_tansu, tansu_missing

pytestmark = pytest.mark.skipif(tansu_missing() is not None, reason=str(tansu_missing()))


async def test_records_come_back_as_they_were_nulls_and_headers_included(tmp_path: Path) -> None:
    server, address = build_tansu(data_dir=tmp_path)
    partition = TopicPartition("tickets", 2)
    headers = [("ce_id", b"1"), ("ce_id", b"2"), ("nothing", None), ("empty", b"")]
    sent = [(b"key", b"value", headers), (b"key", None, []), (None, b"value", []), (b"", b"", [])]
    async with running(server):
        admin = AIOKafkaAdminClient(bootstrap_servers=address)
        await admin.start()
        try:
            await admin.create_topics([NewTopic("tickets", 3, 1, topic_configs={"cleanup.policy": "compact"})])
            (described,) = await admin.describe_topics(["tickets"])
        finally:
            await admin.close()
        assert len(described["partitions"]) == 3
        async with AIOKafkaProducer(bootstrap_servers=address) as producer:
            for key, value, extra in sent:
                await producer.send_and_wait("tickets", value, key, partition=2, headers=extra)
        async with AIOKafkaConsumer(
            bootstrap_servers=address, group_id="readers", enable_auto_commit=False, auto_offset_reset="none"
        ) as consumer:
            consumer.assign([partition])
            assert await consumer.beginning_offsets([partition]) == {partition: 0}
            assert await consumer.end_offsets([partition]) == {partition: 4}
            consumer.seek(partition, 0)
            got = [await consumer.getone() for _ in sent]
            assert await consumer.committed(partition) is None
            await consumer.commit({partition: 3})
            assert await consumer.committed(partition) == 3
    assert [(record.key, record.value, list(record.headers)) for record in got] == sent


async def test_a_stopped_tansu_comes_back_empty_on_the_same_port(tmp_path: Path) -> None:
    server, address = build_tansu(data_dir=tmp_path)
    async with running(server):
        async with AIOKafkaProducer(bootstrap_servers=address) as producer:
            await producer.send_and_wait("tickets", b"1")
        await server.stop()
        assert await missing_from_broker(address) == f"nobody listens on {address}"
        await server.start()
        admin = AIOKafkaAdminClient(bootstrap_servers=address)
        await admin.start()
        try:
            assert await admin.list_topics() == []
        finally:
            await admin.close()


async def test_an_open_port_that_is_no_broker_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.local.kafka_probe._TIMEOUT_MS", 300)
    with socket.create_server((ports.HOST, 0)) as mute:
        address = f"{ports.HOST}:{mute.getsockname()[1]}"
        assert "does not answer a metadata request" in str(await missing_from_broker(address))
