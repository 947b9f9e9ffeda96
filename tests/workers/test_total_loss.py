"""P2, P3: Redis forgets everything while work goes on. What came before is answered by a word, and no effect runs a second time."""

import pytest
from redis.asyncio import Redis

from infra.redis.approvals import RedisApprovalRegistry
from infra.redis.checkpointer import HardenedRedisSaver
from infra.redis.effects import RedisEffectLedger
from infra.redis.held import RedisHeldQueries
from infra.redis.keys import Keys
from infra.redis.leases import RedisLeases
from tests.fakes.agents import World, one
from tests.fakes.chat_model import call, say
from tests.workers.desk import Desk, asked, decided
from topics.events import ApprovalExecuted, ApprovalRefused, ApprovalRequested


async def forget(client: Redis, keys: Keys) -> None:
    """FLUSHALL, for the keys of this test."""
    for key in [key async for key in client.scan_iter(match=f"{keys.prefix}:*")]:
        await client.delete(key)


@pytest.fixture
async def desk(redis_client: Redis, redis_keys: Keys) -> Desk:
    world = World(saver=HardenedRedisSaver(redis_client, keys=redis_keys))
    world.ledger = RedisEffectLedger(redis_client, keys=redis_keys)
    registry = RedisApprovalRegistry(redis_client, keys=redis_keys)
    await registry.prepare()
    return Desk(
        world,
        registry=registry,
        held=RedisHeldQueries(redis_client, keys=redis_keys),
        leases=RedisLeases(redis_client, keys=redis_keys),
    )


def script(desk: Desk) -> None:
    desk.world.script.turns = [call((None, "refund", {"order": "A", "cents": 100})), say("done")]


async def test_a_decision_on_a_thread_that_is_gone_is_answered_and_runs_nothing(desk: Desk, redis_client: Redis, redis_keys: Keys):
    script(desk)
    request = one(ApprovalRequested, await desk.handle(asked("q1")))
    await forget(redis_client, redis_keys)
    await desk.registry.prepare()
    assert one(ApprovalRefused, await desk.handle(decided(request))).code == "unknown"
    await desk.registry.open("acme", [request])  # as `approvals rebuild` brings it back
    assert one(ApprovalRefused, await desk.handle(decided(request, id_="d2"))).code == "thread_gone"
    assert not desk.world.effects()


@pytest.mark.parametrize("honours_keys", [True, False])
async def test_a_question_and_its_decision_that_both_come_again_repeat_the_key_and_nothing_else(
    desk: Desk, redis_client: Redis, redis_keys: Keys, *, honours_keys: bool
):
    """The limit of what can be kept without Redis: both records were done, neither was committed, and the ledger is gone.

    The call is asked anew under the same id, so the yes counts again. The second call carries the first one's idempotency key:
    a service that honours it has done it once, and one that does not has done it twice.
    """
    script(desk)
    desk.world.service.honours_keys = honours_keys
    request = one(ApprovalRequested, await desk.handle(asked("q1")))
    yes = decided(request)
    one(ApprovalExecuted, await desk.handle(yes))
    await forget(redis_client, redis_keys)
    await desk.registry.prepare()
    script(desk)
    again = one(ApprovalRequested, await desk.handle(asked("q1")))
    assert (again.approval_id, again.args_digest) == (request.approval_id, request.args_digest)
    one(ApprovalExecuted, await desk.handle(yes))
    assert len(desk.world.effects()) == (1 if honours_keys else 2)


async def test_a_decision_that_comes_again_alone_runs_nothing(desk: Desk, redis_client: Redis, redis_keys: Keys):
    """The question was committed when Redis forgot, the decision was not."""
    script(desk)
    yes = decided(one(ApprovalRequested, await desk.handle(asked("q1"))))
    one(ApprovalExecuted, await desk.handle(yes))
    await forget(redis_client, redis_keys)
    await desk.registry.prepare()
    assert one(ApprovalRefused, await desk.handle(yes)).code == "unknown"
    assert len(desk.world.effects()) == 1
