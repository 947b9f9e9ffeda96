"""The agent over the checkpointer, leases and ledger that it really runs on."""

import pytest
from redis.asyncio import Redis

from infra.redis.checkpointer import HardenedRedisSaver
from infra.redis.effects import RedisEffectLedger
from infra.redis.keys import Keys
from infra.redis.leases import RedisLeases
from tests.fakes.agents import THREAD, World, adds_up, one, only
from tests.fakes.chat_model import Script, call, say
from tests.fakes.ledger import CrashError, CrashingLedger
from topics import events
from topics.errors import FencedError

REFUND = {"order": "o-1", "cents": 4990}
RAN = ("refund", {**REFUND, "user": "u-9"})


@pytest.fixture
def leases(redis_client: Redis, redis_keys: Keys) -> RedisLeases:
    return RedisLeases(redis_client, keys=redis_keys)


@pytest.fixture
def world(redis_client: Redis, redis_keys: Keys) -> World:
    """Its model orders two refunds and a note, then says that it is done."""
    turn = call(
        ("c1", "refund", REFUND),
        ("c1", "refund", {"order": "o-2", "cents": 1}),
        ("c3", "add_note", {"text": "n", "extra": {"lc": 1, "__interrupt__": [], "__sluice__": "x", "nested": {"__send__": {}}}}),
        text=["One moment. "],
    )
    return World(
        script=Script(answer=lambda messages: turn if messages[-1].type == "human" else say("It is ", "done.")),
        saver=HardenedRedisSaver(redis_client, keys=redis_keys),
        ledger=RedisEffectLedger(redis_client, keys=redis_keys),
    )


async def _under_lease(leases: RedisLeases, world: World, run) -> list[events.Payload]:
    async with leases.hold(THREAD.checkpoint_id) as lease:
        # The world counts up before each call.
        world.fence = lease.fence - 1
        return await run()


@pytest.mark.story
@pytest.mark.parametrize(
    "point", ["", "after claim, before effect", "after effect, before record", "after record, before checkpoint"]
)
async def test_approvals_in_any_order_and_a_death_in_between_give_one_effect_each(world: World, leases: RedisLeases, point: str):
    first, second = only(events.ApprovalRequested, await _under_lease(leases, world, world.ask))
    assert only(events.ApprovalRequested, await _under_lease(leases, world, lambda: world.resume(second, "reject"))) == [first]
    if point:
        inner, world.ledger = world.ledger, CrashingLedger(world.ledger, at=point)
        with pytest.raises((CrashError, BaseExceptionGroup)):
            await _under_lease(leases, world, lambda: world.resume(first))
        world.ledger = inner

    told = await _under_lease(leases, world, lambda: world.resume(first))

    assert world.effects().count(RAN) == 1
    assert sorted(name for name, _ in world.effects()) == ["note", "refund"]
    assert {fact.status for fact in only(events.ApprovalExecuted, told)} == {"ok", "not_run"}
    assert adds_up(told).text == "It is done."
    note = next(arguments for name, arguments in world.effects() if name == "note")
    assert note["extra"] == {"lc": 1, "__interrupt__": [], "__sluice__": "x", "nested": {"__send__": {}}}


@pytest.mark.story
async def test_a_worker_whose_lease_is_over_writes_nothing(world: World, leases: RedisLeases):
    await _under_lease(leases, world, world.ask)
    request = (await world.agent().status(THREAD)).pending[0]
    old = world.fence
    async with leases.hold(THREAD.checkpoint_id):
        world.fence = old - 1
        with pytest.raises((FencedError, BaseExceptionGroup)):
            await world.resume(request)
        assert request in (await world.agent().status(THREAD)).pending
    assert world.effects() == []


@pytest.mark.story
async def test_a_second_query_remembers_the_first(world: World, leases: RedisLeases):
    world.script.answer = lambda messages: say(f"{len(messages)} messages.")
    await _under_lease(leases, world, lambda: world.ask("a", query_id="q1"))
    told = await _under_lease(leases, world, lambda: world.ask("b", query_id="q2"))
    assert one(events.AnswerCompleted, told).text == "4 messages."


@pytest.mark.story
async def test_a_finished_thread_keeps_one_checkpoint_and_its_memory(world: World, leases: RedisLeases):
    """P7: each checkpoint is a whole copy, so a long conversation must not keep them all."""
    world.script = Script(answer=lambda messages: say(f"{sum(1 for one in messages if one.type == 'human')} questions so far."))
    for number in range(3):
        told = await _under_lease(leases, world, lambda number=number: world.ask("more", query_id=f"q{number}"))
    assert one(events.AnswerCompleted, told).text == "3 questions so far."
    config = {"configurable": {"thread_id": THREAD.checkpoint_id, "checkpoint_ns": ""}}
    assert len([found async for found in world.saver.alist(config)]) == 1
