"""The door to Redis: what a server must be, what its errors mean, and when a write is on disk."""

import random

import anyio
import pytest
from redis import exceptions
from redis.asyncio import Redis

from infra.redis import client as door
from infra.redis.keys import Keys, decode, encode
from topics.errors import ConfigError, OutageError


@pytest.fixture
async def setting(redis_client: Redis):
    """Change one setting of the shared server for a test."""
    before: dict[str, str] = {}

    async def change(name: str, value: str) -> None:
        before.setdefault(name, (await redis_client.config_get(name))[name])
        await redis_client.config_set(name, value)

    yield change
    for name, value in before.items():
        await redis_client.config_set(name, value)


async def test_a_good_server_passes_without_a_warning(redis_client: Redis, redis_keys: Keys) -> None:
    assert await door.check_server(redis_client, keys=redis_keys) == []
    assert await redis_client.keys(f"{redis_keys.prefix}:*") == []


async def test_a_server_that_may_evict_keys_is_refused(redis_client: Redis, setting) -> None:
    await setting("maxmemory-policy", "allkeys-lru")
    with pytest.raises(ConfigError, match="maxmemory-policy noeviction"):
        await door.check_server(redis_client)


async def test_a_server_without_an_append_only_file_is_refused(redis_client: Redis, setting) -> None:
    await setting("appendonly", "no")
    with pytest.raises(ConfigError, match="appendonly yes"):
        await door.check_server(redis_client)
    with pytest.raises(ConfigError, match="appendonly yes"):
        await door.wait_durable(redis_client)


async def test_a_slower_disk_rule_is_allowed_and_reported(redis_client: Redis, setting) -> None:
    await setting("appendfsync", "everysec")
    [warning] = await door.check_server(redis_client)
    assert "everysec" in warning


async def test_a_missing_module_is_refused(monkeypatch: pytest.MonkeyPatch, redis_client: Redis) -> None:
    monkeypatch.setattr(door, "MODULES", {"search": "RediSearch", "absent": "Something"})
    with pytest.raises(ConfigError, match="lacks Something"):
        await door.check_server(redis_client)


async def test_a_server_that_is_not_there_is_a_config_error_at_start_and_an_outage_later() -> None:
    client = door.connect("redis://127.0.0.1:1/0", timeout_s=0.5)
    with pytest.raises(ConfigError, match="is it running, and is SLUICE_REDIS_URL right"):
        await door.check_server(client)
    with pytest.raises(OutageError, match="is SLUICE_REDIS_URL right"):
        await door.wait_durable(client)
    await client.aclose()


async def test_a_full_server_is_an_outage_in_a_script_too(redis_client: Redis, redis_keys: Keys, setting) -> None:
    await setting("maxmemory", "1")
    with pytest.raises(OutageError):
        await door.Script(redis_client, "return redis.call('SET', KEYS[1], 'x')")([redis_keys.probe("full")])


async def test_a_pool_that_is_used_up_waits_instead_of_failing(redis_url: str, redis_keys: Keys) -> None:
    client = door.connect(redis_url, timeout_s=5.0, max_connections=2)
    script = door.Script(client, "return redis.call('INCR', KEYS[1])")
    async with anyio.create_task_group() as group:
        for _ in range(100):
            group.start_soon(script, [redis_keys.probe("pool")])
    assert await client.get(redis_keys.probe("pool")) == b"100"
    await client.aclose()


async def test_cancelled_callers_give_their_connections_back_and_mix_up_no_answers(redis_url: str) -> None:
    client = door.connect(redis_url, timeout_s=5.0, max_connections=3)
    echo = door.Script(client, "return ARGV[1]")
    choose = random.Random(1)
    wrong: list[bytes] = []

    async def call(number: int) -> None:
        with anyio.move_on_after(choose.random() * 0.02):
            for turn in range(20):
                sent = f"{number}-{turn}".encode()
                if (answer := await echo([], [sent])) != sent:
                    wrong.append(answer)
                await door.wait_durable(client)

    for _ in range(3):
        async with anyio.create_task_group() as group:
            for number in range(60):
                group.start_soon(call, number)
    with anyio.fail_after(5):
        assert await echo([], ["still alive"]) == b"still alive"
    assert wrong == []
    await client.aclose()


async def test_a_connection_that_died_while_idle_is_replaced(redis_url: str, redis_client: Redis) -> None:
    idle = door.connect(redis_url, timeout_s=5.0, max_connections=1)
    client_id = await idle.client_id()
    await redis_client.client_kill_filter(_id=client_id)
    assert await idle.ping()
    await idle.aclose()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (exceptions.ConnectionError("gone"), OutageError),
        (exceptions.TimeoutError("slow"), OutageError),
        (exceptions.BusyLoadingError("loading"), OutageError),
        (exceptions.ReadOnlyError("replica"), OutageError),
        (exceptions.OutOfMemoryError("full"), OutageError),
        (exceptions.ResponseError("MISCONF Errors writing to the AOF file"), OutageError),
        (exceptions.ResponseError("NOREPLICAS Not enough good replicas"), OutageError),
        (exceptions.AuthenticationError("WRONGPASS"), ConfigError),
        (exceptions.NoPermissionError("no"), ConfigError),
        (exceptions.ResponseError("ERR a bug of ours"), exceptions.ResponseError),
    ],
)
def test_each_client_error_has_one_meaning(error: Exception, kind: type[Exception]) -> None:
    with pytest.raises(kind), door.outages():
        raise error


async def test_a_durable_wait_covers_writes_of_other_connections(redis_url: str, redis_client: Redis, setting) -> None:
    """The controls: on a connection without writes WAITAOF answers at once, with nothing on disk, behind a reading script too."""
    await setting("appendfsync", "everysec")
    waiter = door.connect(redis_url, timeout_s=5.0, max_connections=1)
    reads, writes = door.Script(waiter, "return 1"), door.Script(waiter, "return redis.call('SET', KEYS[1], 'x')")
    spans_s = {}
    for name, wait in (
        ("alone", lambda: waiter.execute_command("WAITAOF", 1, 0, 3000)),
        ("ours", lambda: door.wait_durable(waiter)),
        ("reads", lambda: reads.durable([])),
        ("reads and touches", lambda: reads.durable([], behind="durable-touched")),
        ("writes", lambda: writes.durable(["durable-written"])),
    ):
        # The disk was just written: the next time is about a second away.
        await door.wait_durable(redis_client)
        await redis_client.set("durable-test", name)
        await waiter.aclose()
        await waiter.ping()
        started_s = anyio.current_time()
        await wait()
        spans_s[name] = anyio.current_time() - started_s
    await waiter.aclose()
    assert max(spans_s["alone"], spans_s["reads"]) < 0.3
    assert min(spans_s["ours"], spans_s["reads and touches"], spans_s["writes"]) > 0.3


async def test_a_durable_script_that_the_server_forgot_runs_once(redis_client: Redis, redis_keys: Keys) -> None:
    script = door.Script(redis_client, "return redis.call('INCR', KEYS[1])")
    key = redis_keys.probe("count")
    for number in (1, 2):
        await redis_client.script_flush()
        assert await script.durable([key], behind=redis_keys.durable()) == number
    assert await script.durable([key]) == 3


async def test_what_a_durable_script_fails_with_keeps_its_meaning(redis_client: Redis, redis_keys: Keys, setting) -> None:
    script = door.Script(redis_client, "return redis.call('SET', KEYS[1], 'x')")
    with pytest.raises(exceptions.ResponseError, match="no such thing"):
        await door.Script(redis_client, "return redis.error_reply('ERR no such thing')").durable([], behind=redis_keys.durable())
    await setting("maxmemory", "1")
    with pytest.raises(OutageError):
        await script.durable([redis_keys.probe("full")])
    with pytest.raises(OutageError):
        await door.Script(redis_client, "return 1").durable([], behind=redis_keys.durable())
    await setting("maxmemory", "0")
    await setting("appendonly", "no")
    with pytest.raises(ConfigError, match="appendonly yes"):
        await script.durable([redis_keys.probe("no file")])


def test_encoded_values_do_not_collide_or_escape() -> None:
    keys = Keys("p")
    names = ["a", "A", "a:b", "a%3Ab", "{a}", "a}b{", "a/b", "*", " ", "ä", "a,b", ""]
    made = [keys.approval(tenant, approval) for tenant in names for approval in names]
    assert len(set(made)) == len(made)
    assert all(decode(encode(name)) == name and not set(encode(name)) & set(":{}*/, ") for name in names)
