"""Limits that processes share through Redis, and what is left of them without it."""

import math
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from infra.clock import SystemClock
from infra.local.ports import free_port
from infra.local.redis_server import redis_server
from infra.models.metering import Call, Usage
from infra.models.pacing import GRACE_MS, LONGEST_S, ROUNDING_MS, SOONER, Granted, Later, Pace, Pacer, pace_of
from infra.redis.client import Script, connect
from infra.redis.keys import Keys
from infra.redis.rate_limit import ADMIT, TENANT_TTL_MS, RedisRateLimit, read_answer
from topics.errors import RateLimitedError


def call(tenant: str = "acme", tokens: int = 10, provider: str = "p") -> Call:
    return Call(provider, "m", tenant, tokens)


def limit_on(client: Redis, keys: Keys, pace: Pace, *, processes: int = 2) -> RedisRateLimit:
    return RedisRateLimit(client, {"p": pace}, processes, SystemClock(), keys)


async def moments_of(limits: Sequence[RedisRateLimit], calls: int) -> list[float]:
    """When calls were let go ahead, each again and again until it is."""
    moments: list[float] = []

    async def one(limit: RedisRateLimit) -> None:
        while True:
            try:
                await limit.admit(call())
            except RateLimitedError as error:
                await anyio.sleep(error.retry_after_s or 0)
            else:
                moments.append(anyio.current_time())
                return

    async with anyio.create_task_group() as group:
        for number in range(calls):
            group.start_soon(one, limits[number % len(limits)])
    return sorted(moments)


def most_in(moments: Sequence[float], window_s: float) -> int:
    return max(sum(since <= at < since + window_s for at in moments) for since in moments)


numbers = st.floats(0, 4_000)
asks = st.lists(st.tuples(numbers, st.sampled_from(["a", "b", "c"]), st.integers(1, 90)), max_size=40).map(sorted)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asks, st.sampled_from([None, 5, 60]), st.sampled_from([None, 300]))
async def test_the_script_decides_as_the_pure_pacer_does(
    redis_client: Redis, redis_keys: Keys, asks: list[tuple[float, str, int]], requests: int | None, tokens: int | None
) -> None:
    pace = pace_of(requests, tokens, window_s=2.0, horizon_s=0.4)
    pacer, script = Pacer(pace), Script(redis_client, ADMIT)
    await redis_client.flushdb()
    for at, tenant, size in asks:
        keys = [redis_keys.pace("p"), redis_keys.pace_waiting("p"), redis_keys.pace_of("p", tenant)]
        given = (size, pace.request_ms, pace.token_ms, pace.horizon_ms, LONGEST_S * 1000, 0.5, 0.0, SOONER, GRACE_MS, ROUNDING_MS)
        answer = read_answer(await script(keys, [tenant, *map(repr, given), TENANT_TTL_MS, repr(1e6 + at)]))
        assert about(answer) == about(pacer.ask(tenant, size, 1e6 + at, jitter=0.5)), (at, tenant, size)


def about(answer: Granted | Later) -> tuple[bool, object]:
    number = answer.wait_ms if isinstance(answer, Granted) else answer.retry_ms
    return isinstance(answer, Granted), pytest.approx(number, abs=0.2) if math.isfinite(number) else number


async def test_two_processes_together_stay_within_the_limit_in_every_window(redis_client: Redis, redis_keys: Keys) -> None:
    pace = pace_of(40, None, window_s=0.5, horizon_s=0.1, margin=0.2)
    moments = await moments_of([limit_on(redis_client, redis_keys, pace) for _ in range(2)], 120)
    assert most_in(moments, 0.5) <= 40


async def test_without_redis_each_process_keeps_to_its_share(redis_keys: Keys) -> None:
    client = connect(f"redis://127.0.0.1:{free_port()}/0", timeout_s=0.5)
    try:
        pace = pace_of(40, None, window_s=0.5, horizon_s=0.1, margin=0.2)
        moments = await moments_of([limit_on(client, redis_keys, pace, processes=4)], 15)
    finally:
        await client.aclose()
    assert most_in(moments, 0.5) <= 10


async def test_when_redis_is_back_the_shared_pace_waits_for_what_was_granted_without_it(
    redis_client: Redis, redis_keys: Keys
) -> None:
    limit = limit_on(redis_client, redis_keys, pace_of(6_000, None, horizon_s=0.2))
    await limit.admit(call())
    await anyio.sleep(0.3)
    limit.client = gone = connect(f"redis://127.0.0.1:{free_port()}/0", timeout_s=0.5)
    shared, limit._admit = limit._admit, Script(gone, ADMIT)
    try:
        await limit.admit(call())
    finally:
        await gone.aclose()
    limit._admit = shared
    with anyio.fail_after(10):
        while True:
            before = await redis_client.hget(redis_keys.pace("p"), "requests")
            await limit.admit(call())
            after = await redis_client.hget(redis_keys.pace("p"), "requests")
            if before != after:
                break
    seconds, micros = await redis_client.time()
    assert float(after) >= seconds * 1000 + micros / 1000 - 50  # granted now, at the end of the wait


async def test_no_window_is_above_the_limit_while_redis_is_killed_and_forgets_everything(tmp_path: Path) -> None:
    """I16, without a provider: two processes, and a Redis that dies, is away for a while, and comes back empty."""
    # Long enough that a busy machine which wakes both loops late does not break it.
    pace = pace_of(60, None, window_s=3.0, horizon_s=0.2, margin=0.2)
    moments: list[float] = []
    async with redis_server(data_dir=tmp_path) as server, AsyncExitStack() as stack:
        clients = [connect(server.url, timeout_s=0.5) for _ in range(2)]
        for client in clients:
            stack.push_async_callback(client.aclose)

        async def call_on(limit: RedisRateLimit) -> None:
            while True:
                moments.extend(await moments_of([limit], 1))

        async with anyio.create_task_group() as group:
            for client in clients:
                limit = limit_on(client, Keys("killed"), pace)
                for _ in range(20):
                    group.start_soon(call_on, limit)
            await until(lambda: len(moments) >= 30)
            await server.restart()
            await clients[0].flushall()
            await until(lambda: len(moments) >= 120)
            group.cancel_scope.cancel()
    assert most_in(moments, 3.0) <= 60


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not holds():
            await anyio.sleep(0.02)


async def test_a_provider_without_a_limit_is_not_asked_about(redis_keys: Keys) -> None:
    client = connect("redis://127.0.0.1:1/0", timeout_s=0.1)
    await limit_on(client, redis_keys, pace_of(1, None)).admit(call(provider="another"))
    await client.aclose()


async def test_a_call_that_must_wait_too_long_is_told_when_to_come_back(redis_client: Redis, redis_keys: Keys) -> None:
    limit = limit_on(redis_client, redis_keys, pace_of(6, None, horizon_s=0.05))
    await limit.admit(call())
    with pytest.raises(RateLimitedError) as told:
        await limit.admit(call())
    assert told.value.retry_after_s == pytest.approx(10 / 0.97 * SOONER, abs=0.5)


async def test_usage_beyond_the_estimate_delays_the_next_call_and_unknown_usage_does_not(
    redis_client: Redis, redis_keys: Keys
) -> None:
    limit = limit_on(redis_client, redis_keys, pace_of(None, 6_000, horizon_s=0.05))
    await limit.admit(call())
    before = float(await redis_client.hget(redis_keys.pace("p"), "tokens") or 0)
    await limit.settle(call(), None)
    await limit.settle(call(), Usage(100, 10))
    after = float(await redis_client.hget(redis_keys.pace("p"), "tokens") or 0)
    assert after - before == pytest.approx(100 * 10 / 0.97, abs=0.1)
