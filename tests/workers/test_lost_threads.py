"""A thread of which something is lost, on the checkpointer that it really runs on: never continued, never begun anew."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from redis.asyncio import Redis

from infra.redis.checkpointer import CheckpointLostError, HardenedRedisSaver
from infra.redis.keys import Keys
from infra.redis.leases import RedisLeases
from tests.fakes.agents import THREAD, World, one, only
from tests.fakes.chat_model import call, say
from tests.fakes.clock import START
from tests.workers.desk import Desk, asked, decided, event
from topics.errors import RejectedError
from topics.events import ApprovalAccepted, ApprovalDue, ApprovalExpired, ApprovalRefused, ApprovalRequested, Terms

Loss = Callable[[Redis, Keys], Awaitable[None]]


async def every_key(client: Redis, keys: Keys) -> None:
    for key in [key async for key in client.scan_iter(match=f"{keys.prefix}:thread:*")]:
        await client.delete(key)


async def the_checkpoints(client: Redis, keys: Keys) -> None:
    for key in [key async for key in client.scan_iter(match=f"{keys.prefix}:thread:*checkpoint:*")]:
        await client.delete(key)


async def the_index(client: Redis, keys: Keys) -> None:
    await client.delete(keys.history(THREAD.checkpoint_id))


async def the_newest_checkpoint(client: Redis, keys: Keys) -> None:
    [newest, *_] = await client.zrevrange(keys.history(THREAD.checkpoint_id), 0, 0)
    await client.delete(keys.checkpoints(THREAD.checkpoint_id) + newest.decode()[1:])


async def the_values_of_the_newest(client: Redis, keys: Keys) -> None:
    [newest, *_] = await client.zrevrange(keys.history(THREAD.checkpoint_id), 0, 0)
    await client.hdel(keys.checkpoints(THREAD.checkpoint_id) + newest.decode()[1:], "checkpoint")


LOSSES: list[Loss] = [every_key, the_checkpoints, the_index, the_newest_checkpoint, the_values_of_the_newest]


@pytest.fixture
def desk(redis_client: Redis, redis_keys: Keys) -> Desk:
    world = World(saver=HardenedRedisSaver(redis_client, keys=redis_keys))
    world.script.turns = [call((None, "refund", {"order": "A", "cents": 100})), say("done")]
    return Desk(world, leases=RedisLeases(redis_client, keys=redis_keys))


async def waiting(desk: Desk) -> ApprovalRequested:
    return one(ApprovalRequested, await desk.handle(asked("q1")))


def calls_of_the_model(desk: Desk) -> int:
    return len(desk.world.script.turns)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
async def test_a_decision_for_a_thread_that_is_lost_in_part_is_told_so(
    desk: Desk, redis_client: Redis, redis_keys: Keys, loss: Loss
):
    """P3: nothing runs, nothing is recorded, and its sender is answered."""
    request = await waiting(desk)
    left = calls_of_the_model(desk)
    await loss(redis_client, redis_keys)
    for decision in ("approve", "reject"):
        told = await desk.handle(decided(request, decision, id_=decision))
        refused = one(ApprovalRefused, told)
        assert [type(payload) for payload in told] == [ApprovalRefused]
        assert refused.code == "thread_gone"
    state = await desk.registry.find("acme", request.approval_id)
    assert (state.status, state.answers) == ("pending", ())
    assert not desk.world.effects()
    assert calls_of_the_model(desk) == left, "a ghost run"


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
async def test_a_thread_that_is_lost_between_the_verdict_and_its_resume_is_told_so(
    desk: Desk, redis_client: Redis, redis_keys: Keys, loss: Loss
):
    request = await waiting(desk)
    left = calls_of_the_model(desk)
    store = desk.registry.store

    async def stored_and_lost(state: Any) -> bool:
        stored = await store(state)
        await loss(redis_client, redis_keys)
        return stored

    desk.registry.store = stored_and_lost
    told = await desk.handle(decided(request))
    assert [type(payload) for payload in told] == [ApprovalAccepted, ApprovalRefused]
    assert one(ApprovalRefused, told).code == "thread_gone"
    assert not desk.world.effects()
    assert calls_of_the_model(desk) == left, "a ghost run"


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
async def test_an_approval_of_a_lost_thread_still_expires(desk: Desk, redis_client: Redis, redis_keys: Keys, loss: Loss):
    request = await waiting(desk)
    known = desk.registry.approvals["acme", request.approval_id]
    for at_expiry in ("reject", "cancel"):
        terms = Terms.model_validate({"expires_after_s": 1, "at_expiry": at_expiry})
        changed = request.model_copy(update={"terms": terms, "expires_at": START + timedelta(seconds=1)})
        desk.registry.approvals["acme", request.approval_id] = known.model_copy(update={"request": changed})
        await loss(redis_client, redis_keys)
        desk.clock.advance(10)
        due = ApprovalDue(approval_id=request.approval_id, thread_id=request.thread_id, step="expire")
        told = await desk.handle(event("due", due))
        assert len(only(ApprovalExpired, told)) == 1
        assert not desk.world.effects()


@pytest.mark.parametrize(
    "planted",
    [b'{"__sluice__": "os.system"}', b"\x80\x04.", b"\xc8\x00\x04\x00os", b""],
    ids=["marker", "pickle", "msgpack", "empty"],
)
async def test_planted_bytes_are_refused_unread_the_sender_is_told_and_the_decision_is_kept(
    desk: Desk, redis_client: Redis, redis_keys: Keys, planted: bytes
):
    """Case 38: nothing is made of them, nothing runs; once they are put right the same decision counts."""
    request = await waiting(desk)
    [newest, *_] = await redis_client.zrevrange(redis_keys.history(THREAD.checkpoint_id), 0, 0)
    key = redis_keys.checkpoints(THREAD.checkpoint_id) + newest.decode()[1:]
    good = await redis_client.hget(key, "checkpoint")
    await redis_client.hset(key, "checkpoint", planted)
    with pytest.raises(RejectedError) as parked:
        await desk.handle(decided(request))
    assert parked.value.reason_code == "bad_checkpoint"
    assert [(type(one), getattr(one, "code", "")) for one in desk.told[-1:]] == [(ApprovalRefused, "bad_checkpoint")]
    assert not desk.world.effects()
    assert (await desk.registry.find("acme", request.approval_id)).status == "pending"

    await redis_client.hset(key, "checkpoint", good)
    assert one(ApprovalAccepted, await desk.handle(decided(request))).standing == "won"
    assert len(desk.world.effects()) == 1


async def test_what_is_lost_in_part_is_no_new_thread(redis_client: Redis, redis_keys: Keys, desk: Desk):
    await waiting(desk)
    await the_newest_checkpoint(redis_client, redis_keys)
    with pytest.raises(CheckpointLostError):
        await desk.world.agent().status(THREAD)
