"""What only Redis can show of the approval registry: rows of older builds, what is left behind, and a missing index."""

import pytest
from redis.asyncio import Redis

from infra.redis.approvals import RedisApprovalRegistry
from infra.redis.keys import Keys
from tests.conformance.test_approvals_and_held import asked, decided, timed
from topics.approval_state import ApprovalQuery, ApprovalState
from topics.errors import OutageError
from topics.events import Verdict

VERDICT = Verdict(decision_id="d0", decision="reject", approver="kim")


@pytest.fixture
def registry(redis_client: Redis, redis_keys: Keys) -> RedisApprovalRegistry:
    return RedisApprovalRegistry(redis_client, keys=redis_keys)


async def test_rows_of_a_build_that_kept_one_vote_are_read_and_move_on(
    registry: RedisApprovalRegistry, redis_client: Redis, redis_keys: Keys
):
    request = asked("a1").model_dump_json()
    await redis_client.hset(redis_keys.approval("acme", "a1"), mapping={"status": "pending", "request": request})
    await redis_client.zadd(redis_keys.open_approvals("acme"), {"acme/a1": 1})
    closed = {"status": "decided", "request": request, "verdict": VERDICT.model_dump_json()}
    await redis_client.hset(redis_keys.approval("acme", "a2"), mapping=closed)

    [state] = await registry.pending("acme", limit=5)
    assert state == ApprovalState(tenant="acme", request=asked("a1"), announced=True)
    found = await registry.find("acme", "a2")
    assert found is not None
    assert (found.status, found.verdict) == ("decided", VERDICT)
    assert await registry.store(decided(state, "d1"))
    moved = await registry.find("acme", "a1")
    assert moved is not None
    assert (moved.status, moved.revision) == ("decided", 1)


async def test_an_approval_that_is_over_leaves_nothing_that_lists_or_wakes_it_and_goes_in_time(
    registry: RedisApprovalRegistry, redis_client: Redis, redis_keys: Keys
):
    await registry.open("acme", [timed("a1"), timed("a2")])
    assert await redis_client.ttl(redis_keys.approval("acme", "a1")) == -1, "an open one never goes by itself"
    state = await registry.find("acme", "a1")
    assert state is not None
    await registry.store(decided(state, "d1"))
    assert await redis_client.ttl(redis_keys.approval("acme", "a1")) > 80 * 86_400
    for key in (redis_keys.open_approvals(None), redis_keys.open_approvals("acme"), redis_keys.approval_timers()):
        assert await redis_client.zrange(key, 0, -1) == [b"acme/a2"]
    assert set(await redis_client.hkeys(redis_keys.approval("acme", "a1"))) == {b"status", b"state", b"revision"}


async def test_a_timer_of_nothing_is_forgotten(registry: RedisApprovalRegistry, redis_client: Redis, redis_keys: Keys):
    await registry.open("acme", [timed("a1")])
    await redis_client.delete(redis_keys.approval("acme", "a1"))
    [at] = (await registry.timers()).values()
    state = timed("a1").requested_at
    assert state is not None
    later = state.fromtimestamp(at + 1, tz=state.tzinfo)
    assert await registry.due(later, limit=5) == []
    assert await registry.timers() == {}
    assert await redis_client.exists(redis_keys.approval("acme", "a1")) == 0


async def test_filters_without_an_index_say_so_and_a_list_needs_none(registry: RedisApprovalRegistry):
    await registry.open("acme", [asked("a1")])
    assert len(await registry.pending("acme", limit=5)) == 1
    with pytest.raises(OutageError) as missing:
        await registry.search(ApprovalQuery("acme", tool="refund"))
    assert missing.value.reason_code == "search_index_missing"


async def test_an_index_that_is_made_later_finds_what_was_there(registry: RedisApprovalRegistry):
    await registry.open("acme", [asked("a1"), asked("a2", tool="other")])
    await registry.prepare()
    await registry.prepare()
    page = ApprovalQuery("acme", tool="refund")
    for _ in range(200):  # the server takes them in behind our back
        found = (await registry.search(page)).approvals
        if found:
            break
    assert [one.request.approval_id for one in found] == ["a1"]
