"""Apache Kafka from Maven artifacts: a real broker, strict where Tansu is lenient, with data that stays."""

import re
from pathlib import Path

import anyio
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import OffsetOutOfRangeError

from infra.local import apache_kafka
from infra.local.apache_kafka import KAFKA_VERSION, apache_kafka_missing, fetch, tool_command
from infra.local.kafka_probe import missing_from_broker
from infra.local.stack import local_stack
from tests.infra.local.watching import eventually, is_alive, parent
from topics.errors import ConfigError

needs_kafka = pytest.mark.skipif(apache_kafka_missing() is not None, reason=str(apache_kafka_missing()))

PARENT = """
import sys
from pathlib import Path
import anyio
from infra.local.stack import local_stack

async def main():
    only_kafka = {"redis_url": "redis://unused:6379/0", "model_server": False, "back_office": False}
    async with local_stack(data_dir=Path(sys.argv[1]), broker="apache-kafka", **only_kafka) as stack:
        print(stack.pid_of("broker"), flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


@needs_kafka
@pytest.mark.story
@pytest.mark.timeout(300)
async def test_a_real_broker_keeps_records_and_offsets_over_a_restart_and_refuses_what_tansu_does_not(tmp_path: Path) -> None:
    partition = TopicPartition("tickets", 0)
    async with local_stack(
        data_dir=tmp_path, broker="apache-kafka", redis_url="redis://unused:6379/0", model_server=False, back_office=False
    ) as stack:
        address = stack.endpoints.kafka_bootstrap
        assert stack.endpoints.broker == f"apache-kafka {KAFKA_VERSION}"
        admin = AIOKafkaAdminClient(bootstrap_servers=address)
        await admin.start()
        try:
            await admin.create_topics([NewTopic("tickets", 1, 1)])
        finally:
            await admin.close()
        async with AIOKafkaProducer(bootstrap_servers=address, acks="all", enable_idempotence=True) as producer:
            await producer.send_and_wait("tickets", None, b"gone", headers=[("nothing", None)])

        await anyio.run_process(
            tool_command("org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", address, "--topic", "tickets"),
            input=b"from a plain producer\n",
        )

        async def read() -> list[bytes | None]:
            async with AIOKafkaConsumer(
                bootstrap_servers=address, group_id="readers", enable_auto_commit=False, auto_offset_reset="none"
            ) as consumer:
                consumer.assign([partition])
                consumer.seek(partition, 0)
                values = [(await consumer.getone()).value for _ in range(2)]
                await consumer.commit({partition: 2})
                consumer.seek(partition, 99)
                with pytest.raises(OffsetOutOfRangeError):
                    await consumer.getone()
                return values

        assert await read() == [None, b"from a plain producer"]
        await stack.stop_broker()
        assert await missing_from_broker(address) is not None
        await stack.start_broker()
        async with AIOKafkaConsumer(bootstrap_servers=address, group_id="readers", enable_auto_commit=False) as consumer:
            # None at first: the client overlooks that the coordinator says it is still loading.
            with anyio.fail_after(20):
                while await consumer.committed(partition) != 2:
                    await anyio.sleep(0.02)
        assert await read() == [None, b"from a plain producer"]


@needs_kafka
@pytest.mark.story
@pytest.mark.timeout(300)
def test_a_parent_that_is_killed_leaves_no_broker(tmp_path: Path) -> None:
    with parent(PARENT, str(tmp_path)) as (process, (pid,)):
        assert is_alive(pid)
        process.kill()
        process.wait(20)
        assert eventually(lambda: not is_alive(pid))


def executable(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("java", "mvn", "missing"),
    [
        (None, None, r"no `java` is on the PATH"),
        ('openjdk version "11.0.2" 2019-01-15', "", r"Java 17 or newer, and .*/java is version 11$"),
        ('java version "1.8.0_392"', "", r"is version 1$"),
        ('openjdk version "21" 2023-09-19', None, r"no `mvn` is on the PATH"),
        ('openjdk version "17.0.15" 2025-04-15', "", None),
    ],
)
def test_what_is_missing_is_said_in_one_sentence(
    java: str | None, mvn: str | None, missing: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    if java is not None:
        executable(tmp_path / "java", f"echo '{java}' >&2")
    if mvn is not None:
        executable(tmp_path / "mvn", "exit 0")
    found = apache_kafka_missing()
    if missing is None:
        assert found is None
    else:
        assert found is not None
        assert re.search(missing, found)


async def test_a_fetch_that_fails_leaves_no_half_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apache_kafka, "apache_kafka_missing", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    executable(tmp_path / "mvn", "mkdir jars; touch jars/half.jar; echo 'the repository is out of reach'; exit 1")
    cache = tmp_path / "cache"
    with pytest.raises(ConfigError, match=r"fetch of Apache Kafka .* failed: the repository is out of reach"):
        await fetch(cache)
    assert [path.name for path in cache.iterdir()] == ["maven.log"]


async def test_what_was_fetched_once_is_not_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apache_kafka, "apache_kafka_missing", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    executable(tmp_path / "mvn", "mkdir jars; touch jars/kafka.jar")
    jars = await fetch(tmp_path / "cache")
    executable(tmp_path / "mvn", "exit 1")
    assert await fetch(tmp_path / "cache") == jars
    assert [path.name for path in jars.iterdir()] == ["kafka.jar"]


def test_who_comes_in_by_the_second_door_is_sent_to_its_advertised_port(tmp_path: Path) -> None:
    """A proxy stands there; who comes in by the first door passes no proxy."""
    node = apache_kafka._Node(
        folder=tmp_path,
        logs=tmp_path,
        cache_dir=tmp_path,
        port=1001,
        controller_port=1002,
        second_listener=(1003, 1004),
        overrides={"group.min.session.timeout.ms": 1000},
    )
    settings = node._settings()
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:1001,SECOND://127.0.0.1:1003,CONTROLLER://127.0.0.1:1002"
    assert settings["advertised.listeners"] == "PLAINTEXT://127.0.0.1:1001,SECOND://127.0.0.1:1004"
    assert settings["group.min.session.timeout.ms"] == 1000
