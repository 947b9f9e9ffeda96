"""Leases on the real server: expiry, renewal, loss, and the token."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import anyio
import pytest
from redis.asyncio import Redis

from infra.redis.keys import Keys
from infra.redis.leases import RedisLeases
from topics.errors import FencedError, LeaseBusyError, OutageError


async def test_a_lease_is_renewed_for_as_long_as_the_block_runs(redis_client: Redis, redis_keys: Keys) -> None:
    """A time to live only grows when somebody renews it."""
    leases = RedisLeases(redis_client, lease_ms=900, keys=redis_keys)
    renewals, before_ms = 0, 900
    with anyio.fail_after(20):
        async with leases.hold("t1"):
            while renewals < 3:
                left_ms = await redis_client.pttl(redis_keys.lease("t1"))
                renewals += left_ms > before_ms
                before_ms = left_ms
                await anyio.sleep(0.01)


async def test_a_crashed_holders_lease_ends_by_itself(redis_client: Redis, redis_keys: Keys) -> None:
    leases = RedisLeases(redis_client, lease_ms=5000, keys=redis_keys)
    await redis_client.set(redis_keys.lease("t1"), "a holder that crashed", px=100)
    with anyio.fail_after(5):
        while True:
            try:
                async with leases.hold("t1"):
                    return
            except LeaseBusyError:
                await anyio.sleep(0.01)


async def lose_while_holding(leases: RedisLeases, client: Redis, keys: Keys) -> None:
    with anyio.fail_after(10):
        async with leases.hold("t1"):
            await client.set(keys.lease("t1"), "another holder")
            await anyio.sleep_forever()


async def test_a_lost_lease_cancels_the_block_and_leaves_the_new_holder_alone(redis_client: Redis, redis_keys: Keys) -> None:
    with pytest.raises(FencedError):
        await lose_while_holding(RedisLeases(redis_client, lease_ms=1500, keys=redis_keys), redis_client, redis_keys)
    assert await redis_client.get(redis_keys.lease("t1")) == b"another holder"


async def test_without_the_token_a_release_would_free_the_new_holder(
    monkeypatch: pytest.MonkeyPatch, redis_client: Redis, redis_keys: Keys
) -> None:
    """The control of the test above: what it asserts rests on the comparison of tokens."""
    monkeypatch.setattr("infra.redis.leases.RELEASE", "return redis.call('DEL', KEYS[1])")
    with pytest.raises(FencedError):
        await lose_while_holding(RedisLeases(redis_client, lease_ms=1500, keys=redis_keys), redis_client, redis_keys)
    assert await redis_client.get(redis_keys.lease("t1")) is None


async def test_a_lease_that_cannot_be_renewed_in_time_is_an_outage(redis_client: Redis, redis_keys: Keys) -> None:
    leases = RedisLeases(redis_client, lease_ms=200, keys=redis_keys)

    async def cut(*_: object) -> int:
        raise OutageError("cut")

    leases._renew = cut
    with anyio.fail_after(5), pytest.raises(OutageError, match="renewed in time"):
        async with leases.hold("t1"):
            await anyio.sleep_forever()


async def tick(client: Redis) -> None:
    """Return when the server's clock shows another millisecond."""
    before = await client.time()
    while (now := await client.time())[0] == before[0] and now[1] // 1000 == before[1] // 1000:
        pass


async def test_a_fence_grows_over_a_loss_of_everything_and_over_a_return_of_older_data(
    redis_client: Redis, redis_keys: Keys
) -> None:
    """P2, P9: a fence given twice lets a writer of before the loss in, and a lower one gives attempts that readers pass over."""
    leases = RedisLeases(redis_client, lease_ms=5000, keys=redis_keys)
    async with leases.hold("t1") as first:
        older = await redis_client.get(redis_keys.fence("t1"))
    async with leases.hold("t1") as second:
        pass
    await tick(redis_client)
    await redis_client.set(redis_keys.fence("t1"), older)
    async with leases.hold("t1") as after_old_data:
        pass
    await tick(redis_client)
    await redis_client.delete(redis_keys.fence("t1"))
    async with leases.hold("t1") as after_the_loss:
        pass
    assert first.fence < second.fence < after_old_data.fence < after_the_loss.fence


async def test_a_fence_is_above_the_one_before_when_the_clock_is_behind_it(redis_client: Redis, redis_keys: Keys) -> None:
    """A server whose clock was set back, or that another one took over from."""
    ahead = 2**52
    await redis_client.set(redis_keys.fence("t1"), ahead)
    leases = RedisLeases(redis_client, lease_ms=5000, keys=redis_keys)
    for number in (1, 2):
        async with leases.hold("t1") as lease:
            assert lease.fence == ahead + number


async def test_an_attempt_is_a_whole_number_that_any_json_reader_keeps(redis_client: Redis, redis_keys: Keys) -> None:
    async with RedisLeases(redis_client, keys=redis_keys).hold("t1") as lease:
        hundred_years_ms = 100 * 366 * 86_400_000
        assert (lease.fence + hundred_years_ms) * 1000 < 2**53


async def test_a_hundred_workers_race_and_one_holds(redis_client: Redis, redis_keys: Keys) -> None:
    leases = RedisLeases(redis_client, lease_ms=5000, keys=redis_keys)
    inside = 0
    outcomes: list[str] = []
    done = anyio.Event()

    async def race() -> None:
        nonlocal inside
        try:
            async with leases.hold("t1"):
                inside += 1
                assert inside == 1
                await done.wait()
                inside -= 1
                outcomes.append("held")
        except LeaseBusyError:
            outcomes.append("busy")
            if outcomes.count("busy") == 99:
                done.set()

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            for _ in range(100):
                group.start_soon(race)
    assert sorted(outcomes) == ["busy"] * 99 + ["held"]


async def hold_and_yield(leases: RedisLeases) -> AsyncGenerator[int]:
    async with leases.hold("t1") as lease:
        yield lease.fence


async def leave_at_the_yield(leases: RedisLeases) -> None:
    async with aclosing(hold_and_yield(leases)) as fences:
        async for _ in fences:
            raise OutageError("the broker does not take it")


async def test_a_holder_that_is_closed_ends_like_any_other_and_frees_the_thread(redis_client: Redis, redis_keys: Keys) -> None:
    """P1: a handler holds its thread at a yield; when its output is not taken it is closed there, and only it ends."""
    with pytest.raises(OutageError):
        await leave_at_the_yield(RedisLeases(redis_client, lease_ms=5000, keys=redis_keys))
    assert await redis_client.get(redis_keys.lease("t1")) is None


async def lose_at_the_yield(leases: RedisLeases, client: Redis, keys: Keys) -> None:
    with anyio.fail_after(10):
        async with aclosing(hold_and_yield(leases)) as fences:
            async for _ in fences:
                await client.set(keys.lease("t1"), "another holder")
                await anyio.sleep_forever()  # as an output that the broker is slow to take


async def test_a_lease_that_is_lost_while_its_holder_waits_at_a_yield_is_told_as_what_it_is(
    redis_client: Redis, redis_keys: Keys
) -> None:
    """A bare cancellation would be taken for a fault of the handler, spend its attempts, and end as a dead letter."""
    with pytest.raises(FencedError):
        await lose_at_the_yield(RedisLeases(redis_client, lease_ms=1500, keys=redis_keys), redis_client, redis_keys)
    assert await redis_client.get(redis_keys.lease("t1")) == b"another holder"
