"""The inbox on the real server: retention, large batches, and the same end as the fake after any sequence of calls."""

import random
from typing import Any

import pytest
from redis.asyncio import Redis

from infra.claims import Claim, Failure
from infra.redis.client import connect
from infra.redis.inbox import RedisInbox
from infra.redis.keys import Keys
from tests.fakes.inbox import MemoryInbox
from topics.errors import OutageError

IDS = ["a", "b", "c", "d"]


async def one_call(inbox: Any, call: int, ids: list[str], at_ms: int) -> Any:
    """One of the calls of the port, chosen by number, so that two inboxes can be driven alike."""
    if call == 0:
        return list(await inbox.start(ids, owner="w"))
    if call == 1:
        return await inbox.settle([(claim_id, "done" if at_ms % 2 else "dead") for claim_id in ids])
    if call == 2:
        return await inbox.release(ids)
    return await inbox.fail([Failure(claim_id, due_at_ms=at_ms + 50, failed_at_ms=at_ms) for claim_id in ids])


@pytest.mark.parametrize("seed", range(20))
async def test_redis_and_the_fake_agree_after_any_sequence(redis_client: Redis, redis_keys: Keys, seed: int) -> None:
    choose = random.Random(seed)
    real, fake = RedisInbox(redis_client, group="g", retention_s=60, keys=redis_keys), MemoryInbox()
    for at_ms in range(1, 40):
        call = choose.choices([0, 1, 2, 3], weights=[6, 1, 3, 4])[0]
        ids = choose.sample(IDS, choose.randint(1, len(IDS)))
        assert await one_call(real, call, ids, at_ms) == await one_call(fake, call, ids, at_ms)
        assert list(await real.look(IDS)) == list(await fake.look(IDS))


async def test_every_claim_is_kept_for_the_retention(redis_client: Redis, redis_keys: Keys) -> None:
    inbox = RedisInbox(redis_client, group="g", retention_s=60, keys=redis_keys)
    await inbox.start(["started", "failed", "settled"], owner="w1")
    await inbox.fail([Failure("failed", due_at_ms=1, failed_at_ms=1)])
    await inbox.settle([("settled", "done")])
    for claim_id in ("started", "failed", "settled"):
        assert 58 <= await redis_client.ttl(redis_keys.claim("g", claim_id)) <= 60


async def test_groups_do_not_see_each_other(redis_client: Redis, redis_keys: Keys) -> None:
    one = RedisInbox(redis_client, group="g", retention_s=60, keys=redis_keys)
    other = RedisInbox(redis_client, group="g:2", retention_s=60, keys=redis_keys)
    await one.settle([("a", "done")])
    assert await other.look(["a"]) == [Claim()]


async def test_a_batch_of_thousands_is_one_call(redis_client: Redis, redis_keys: Keys) -> None:
    inbox = RedisInbox(redis_client, group="g", retention_s=60, keys=redis_keys)
    ids = [str(number) for number in range(5000)]
    assert await inbox.start(ids, owner="w1") == [1] * 5000
    await inbox.settle([(claim_id, "done") for claim_id in ids])
    assert set(await inbox.look(ids)) == {Claim("done")}


async def test_no_answer_is_an_outage() -> None:
    client = connect("redis://127.0.0.1:1/0", timeout_s=0.5)
    inbox = RedisInbox(client, group="g", retention_s=60)
    for call in (
        inbox.look(["a"]),
        inbox.start(["a"], owner="w1"),
        inbox.settle([("a", "done")]),
        inbox.fail([Failure("a", due_at_ms=1, failed_at_ms=1)]),
        inbox.release(["a"]),
    ):
        with pytest.raises(OutageError):
            await call
    await client.aclose()
