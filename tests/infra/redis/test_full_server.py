"""A full Redis takes no new work, and still hears what is finished."""

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from flows.ports import Passage
from infra.claims import Claim
from infra.redis.effects import EffectClaim, RedisEffectLedger
from infra.redis.inbox import RedisInbox
from infra.redis.keys import Keys
from infra.redis.leases import RedisLeases
from infra.redis.search import RedisArticleIndex
from topics.errors import OutageError


@pytest.fixture
async def full(redis_client: Redis) -> AsyncIterator[Redis]:
    yield redis_client
    await redis_client.config_set("maxmemory", "0")


async def test_no_record_starts_but_one_that_is_done_is_settled(full: Redis, redis_keys: Keys) -> None:
    inbox = RedisInbox(full, group="g", retention_s=60, keys=redis_keys)
    await inbox.start(["a"], owner="w1")
    await full.config_set("maxmemory", "1")
    with pytest.raises(OutageError):
        await inbox.start(["a", "b"], owner="w1")
    await inbox.settle([("a", "done")])
    assert await inbox.look(["a", "b"]) == [Claim("done"), Claim()]


async def test_no_effect_begins_but_one_that_ran_is_recorded(full: Redis, redis_keys: Keys) -> None:
    ledger = RedisEffectLedger(full, keys=redis_keys)
    async with RedisLeases(full, keys=redis_keys).hold("t1") as lease:
        await ledger.begin("ran", thread="t1", fence=lease.fence)
        await full.config_set("maxmemory", "1")
        with pytest.raises(OutageError):
            await ledger.begin("not yet", thread="t1", fence=lease.fence)
        await ledger.finish("ran", result="paid", ok=True)
        assert await ledger.begin("ran", thread="t1", fence=lease.fence) == EffectClaim("done", "paid", ok=True)


async def test_an_article_is_taken_out_which_makes_room(full: Redis, redis_keys: Keys) -> None:
    index = RedisArticleIndex(full, redis_keys, dimensions=1)
    passage = Passage("acme", "a1", "Refunds", "Refunds", "five days", revision=1, ordinal=0)
    await index.replace(tenant="acme", article_id="a1", passages=[passage], vectors=[[1.0]])
    await full.config_set("maxmemory", "1")
    assert await index.remove(tenant="acme", article_id="a1") == 1
    assert await full.exists(redis_keys.retired("acme", "a1")) == 1


async def test_nobody_is_granted_a_thread(full: Redis, redis_keys: Keys) -> None:
    await full.config_set("maxmemory", "1")
    with pytest.raises(OutageError):
        async with RedisLeases(full, keys=redis_keys).hold("t1"):
            pytest.fail("the block ran")


async def test_a_start_that_came_to_nothing_is_taken_back(full: Redis, redis_keys: Keys) -> None:
    """P7: counted as deaths, five of them would be a crash loop."""
    inbox = RedisInbox(full, group="g", retention_s=60, keys=redis_keys)
    await inbox.start(["a", "b"], owner="w1")
    await inbox.start(["b"], owner="w1")
    await full.config_set("maxmemory", "1")
    await inbox.release(["a", "b"])
    assert await inbox.look(["a", "b"]) == [Claim(), Claim("running", 1)]
