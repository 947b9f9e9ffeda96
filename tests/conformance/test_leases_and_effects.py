"""One behaviour of leases and the effect ledger: in memory, and in Redis."""

from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from infra.redis.effects import EffectClaim, RedisEffectLedger
from infra.redis.leases import RedisLeases
from tests.fakes.effects import MemoryEffectLedger
from tests.fakes.leases import MemoryLeases
from topics.errors import FencedError, LeaseBusyError


@dataclass
class Pair:
    leases: Any
    ledger: Any


@pytest.fixture(params=["memory", "redis"])
def pair(request: pytest.FixtureRequest) -> Pair:
    if request.param == "memory":
        leases = MemoryLeases()
        return Pair(leases, MemoryEffectLedger(leases.fences))
    client, keys = request.getfixturevalue("redis_client"), request.getfixturevalue("redis_keys")
    return Pair(RedisLeases(client, lease_ms=5000, keys=keys), RedisEffectLedger(client, keys=keys))


async def test_a_thread_has_one_holder(pair: Pair) -> None:
    async with pair.leases.hold("t1"):
        with pytest.raises(LeaseBusyError):
            async with pair.leases.hold("t1"):
                pytest.fail("the block ran")
        async with pair.leases.hold("t2") as other:
            assert other.thread == "t2"


async def test_the_fence_grows_with_every_grant(pair: Pair) -> None:
    fences = []
    for _ in range(3):
        async with pair.leases.hold("t1") as lease:
            fences.append(lease.fence)
    assert fences == sorted(set(fences))


async def test_an_error_in_the_block_comes_out_as_it_is_and_frees_the_thread(pair: Pair) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with pair.leases.hold("t1") as failed:
            raise KeyError("mine")
    async with pair.leases.hold("t1") as lease:
        assert lease.fence > failed.fence


async def test_a_cancelled_block_frees_the_thread(pair: Pair) -> None:
    with anyio.move_on_after(0.05) as scope:
        async with pair.leases.hold("t1") as cancelled:
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    async with pair.leases.hold("t1") as lease:
        assert lease.fence > cancelled.fence


async def test_an_effect_is_new_once_then_in_doubt_then_done(pair: Pair) -> None:
    async with pair.leases.hold("t1") as lease:
        assert await pair.ledger.begin("refund", thread="t1", fence=lease.fence) == EffectClaim("new")
        assert await pair.ledger.begin("refund", thread="t1", fence=lease.fence) == EffectClaim("in_doubt")
        await pair.ledger.finish("refund", result="paid 49,90 €", ok=True)
        assert await pair.ledger.begin("refund", thread="t1", fence=lease.fence) == EffectClaim("done", "paid 49,90 €", ok=True)


async def test_the_first_result_of_an_effect_stands(pair: Pair) -> None:
    async with pair.leases.hold("t1") as lease:
        await pair.ledger.begin("refund", thread="t1", fence=lease.fence)
        await pair.ledger.finish("refund", result="", ok=False)
        await pair.ledger.finish("refund", result="paid", ok=True)
        assert await pair.ledger.begin("refund", thread="t1", fence=lease.fence) == EffectClaim("done", "", ok=False)


async def test_a_writer_with_an_old_fence_claims_nothing(pair: Pair) -> None:
    async with pair.leases.hold("t1") as old:
        pass
    async with pair.leases.hold("t1") as new:
        with pytest.raises(FencedError):
            await pair.ledger.begin("refund", thread="t1", fence=old.fence)
        assert await pair.ledger.begin("refund", thread="t1", fence=new.fence) == EffectClaim("new")


async def test_nobody_claims_on_a_thread_that_was_never_granted(pair: Pair) -> None:
    with pytest.raises(FencedError):
        await pair.ledger.begin("refund", thread="t1", fence=1)
