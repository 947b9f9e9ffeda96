"""The embedded Redis: real, durable, alone on its data, and gone with its parent."""

import os
import signal
import socket
from pathlib import Path

import pytest
from redis.asyncio import Redis

from infra.local import ports, processes
from infra.local.redis_server import redis_missing, redis_server
from tests.infra.local.watching import eventually, impatient_guard, is_alive, parent
from topics.errors import ConfigError

pytestmark = pytest.mark.skipif(redis_missing() is not None, reason=str(redis_missing()))

PARENT = """
import sys
from pathlib import Path
import anyio
from infra.local.redis_server import redis_server

async def main():
    async with redis_server(data_dir=Path(sys.argv[1])) as redis:
        print(redis.pid, redis.port, flush=True)
        await anyio.sleep_forever()

anyio.run(main)
"""


async def test_it_answers_with_search_and_json_and_keeps_everything_on_disk(tmp_path: Path) -> None:
    async with redis_server(data_dir=tmp_path) as redis, Redis.from_url(redis.url, decode_responses=True) as client:
        await client.json().set("doc:1", "$", {"title": "Reset a password"})
        await client.execute_command(
            "FT.CREATE", "docs", "ON", "JSON", "PREFIX", 1, "doc:", "SCHEMA", "$.title", "AS", "title", "TEXT"
        )
        for name, value in {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}.items():
            assert (await client.config_get(name))[name] == value
        assert Path((await client.config_get("dir"))["dir"]) == tmp_path / "redis"
        assert redis.log_path.read_text().count("Ready to accept connections") == 1


async def test_a_restart_by_sigkill_keeps_port_and_data(tmp_path: Path) -> None:
    async with redis_server(data_dir=tmp_path) as redis:
        first = redis.pid
        async with Redis.from_url(redis.url) as client:
            await client.set("approval", "asked")
        await redis.restart()
        assert redis.pid != first
        assert not is_alive(first)
        async with Redis.from_url(redis.url) as client:
            assert await client.get("approval") == b"asked"


async def test_nothing_is_left_after_the_block_and_the_data_is_there_next_time(tmp_path: Path) -> None:
    async with redis_server(data_dir=tmp_path) as redis:
        pid = redis.pid
        async with Redis.from_url(redis.url) as client:
            await client.set("kept", "yes")
        assert is_alive(pid)
    assert not is_alive(pid)
    async with redis_server(data_dir=tmp_path) as redis, Redis.from_url(redis.url) as client:
        assert await client.get("kept") == b"yes"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_parent_that_is_ended_by_a_signal_leaves_no_redis(number: signal.Signals, tmp_path: Path) -> None:
    with parent(PARENT, str(tmp_path)) as (process, (redis_pid, port)):
        assert is_alive(redis_pid)
        with socket.create_connection((ports.HOST, port)) as client:
            client.sendall(b"PING\r\n")
            assert client.recv(100) == b"+PONG\r\n"
        # To the group, as a terminal does it.
        os.killpg(process.pid, number)
        process.wait(20)
        assert eventually(lambda: not is_alive(redis_pid)), "redis outlived its parent"


async def test_a_new_start_waits_for_the_redis_of_a_parent_that_was_killed(tmp_path: Path) -> None:
    with parent(PARENT, str(tmp_path)) as (process, (_, port)):
        with socket.create_connection((ports.HOST, port)) as client:
            client.sendall(b"SET kept yes\r\n")
            assert client.recv(100) == b"+OK\r\n"
        process.kill()
        process.wait(20)
    async with redis_server(data_dir=tmp_path) as redis, Redis.from_url(redis.url) as client:
        assert await client.get("kept") == b"yes"


async def test_two_of_them_never_write_to_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_GUARD", impatient_guard(tmp_path))
    async with redis_server(data_dir=tmp_path):
        with pytest.raises(ConfigError, match=f"another server is using {tmp_path / 'redis'}"):
            async with redis_server(data_dir=tmp_path):
                pytest.fail("the block must not run")


async def test_a_busy_port_is_named_with_its_setting(tmp_path: Path) -> None:
    with socket.create_server((ports.HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"port {port} .*another port"):
            async with redis_server(data_dir=tmp_path, port=port):
                pass


async def test_a_folder_that_is_a_file_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cannot be written to .*another data_dir"):
        async with redis_server(data_dir=tmp_path / "file"):
            pass


async def test_a_redis_that_dies_at_start_says_why(tmp_path: Path) -> None:
    async with redis_server(data_dir=tmp_path) as redis, Redis.from_url(redis.url) as client:
        await client.set("a", "b")
    manifest = next((tmp_path / "redis" / "appendonlydir").glob("*.manifest"))
    manifest.write_text("this is no manifest\n")
    with pytest.raises(ConfigError, match=r"redis ended at start: .*manifest"):
        async with redis_server(data_dir=tmp_path):
            pass
