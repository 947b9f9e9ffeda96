"""One behaviour of the approval registry and of held questions: in memory, and in Redis."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from infra.redis.approvals import RedisApprovalRegistry
from infra.redis.held import HeldQuery, RedisHeldQueries
from tests.fakes.approvals import MemoryApprovalRegistry
from tests.fakes.clock import START
from tests.fakes.held import MemoryHeldQueries
from topics.approval_state import ApprovalQuery, ApprovalState
from topics.events import ApprovalAccepted, ApprovalRefused, ApprovalRequested, QueryAsked, Terms, Verdict


@pytest.fixture(params=["memory", "redis"])
def registry(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    if request.param == "memory":
        return MemoryApprovalRegistry()
    monkeypatch.setattr("infra.redis.approvals.WINDOWS", (2, 4))  # so that a few approvals reach behind them
    return RedisApprovalRegistry(request.getfixturevalue("redis_client"), keys=request.getfixturevalue("redis_keys"))


@pytest.fixture(params=["memory", "redis"])
def held(request: pytest.FixtureRequest) -> Any:
    if request.param == "memory":
        return MemoryHeldQueries()
    return RedisHeldQueries(request.getfixturevalue("redis_client"), keys=request.getfixturevalue("redis_keys"))


def asked(approval_id: str, **changed: Any) -> ApprovalRequested:
    fields = {
        "approval_id": approval_id,
        "thread_id": "t1",
        "query_id": "q1",
        "interrupt_id": "i1",
        "tool": "refund",
        "tool_class": "IRREVERSIBLE",
        "arguments": {"order_id": "W1", "amount_cents": 4990, "note": "für dich ✓", "share": 0.1, "none": None},
        "args_digest": "d1",
        "policy_version": "1",
        "graph_version": "1",
        "allowed_decisions": ("approve", "reject"),
    }
    return ApprovalRequested.model_validate(fields | changed)


def timed(approval_id: str, *, remind_every_s: int = 100, expires_after_s: int = 250, **changed: Any) -> ApprovalRequested:
    expires_at = START + timedelta(seconds=expires_after_s)
    terms = Terms(remind_every_s=remind_every_s, expires_after_s=expires_after_s)
    return asked(approval_id, requested_at=START, expires_at=expires_at, terms=terms, **changed)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def decided(state: ApprovalState, decision_id: str) -> ApprovalState:
    verdict = Verdict(decision_id=decision_id, decision="approve", approver="kim")
    answer = ApprovalAccepted(
        approval_id=state.request.approval_id, thread_id="t1", decision_id=decision_id, decision="approve", approver="kim"
    )
    return state.changed(status="decided", verdict=verdict, answers=(*state.answers, answer))


def refused(state: ApprovalState, decision_id: str) -> ApprovalState:
    answer = ApprovalRefused(
        approval_id=state.request.approval_id, thread_id="t1", decision_id=decision_id, code="forbidden", reason="no_authority"
    )
    return state.changed(answers=(*state.answers, answer))


async def found(registry: Any, approval_id: str, tenant: str = "acme") -> ApprovalState:
    state = await registry.find(tenant, approval_id)
    assert state is not None
    return state


async def listed(registry: Any, **query: Any) -> list[str]:
    page = await registry.search(ApprovalQuery(**{"tenant": "acme", **query}))
    return [one.request.approval_id for one in page.approvals]


async def test_a_request_is_found_as_it_was_made(registry: Any) -> None:
    await registry.open("acme", [asked("a1")])
    assert await found(registry, "a1") == ApprovalState(tenant="acme", request=asked("a1"))


async def test_another_tenants_approval_is_unknown(registry: Any) -> None:
    await registry.open("acme", [asked("a1")])
    assert await registry.find("globex", "a1") is None
    other = ApprovalState(tenant="globex", request=asked("a1"))
    with pytest.raises(LookupError):
        await registry.store(decided(other, "d1"))
    with pytest.raises(LookupError):
        await registry.withdraw("globex", "a1")
    assert (await found(registry, "a1")).status == "pending"


async def test_a_known_request_stays_as_it_is(registry: Any) -> None:
    await registry.open("acme", [asked("a1")])
    assert await registry.store(decided(await found(registry, "a1"), "d1"))
    await registry.open("acme", [asked("a1", tool="other"), asked("a2")])
    state = await found(registry, "a1")
    assert (state.status, state.request.tool) == ("decided", "refund")
    assert await listed(registry) == ["a2"]


async def test_of_two_changes_of_one_revision_the_first_stands(registry: Any) -> None:
    await registry.open("acme", [asked("a1")])
    before = await found(registry, "a1")
    assert await registry.store(refused(before, "d1"))
    assert not await registry.store(decided(before, "d2"))
    state = await found(registry, "a1")
    assert state == refused(before, "d1")
    assert await registry.store(decided(state, "d2"))
    assert await found(registry, "a1") == decided(state, "d2")


async def test_fifty_changes_at_once_have_one_winner(registry: Any) -> None:
    await registry.open("acme", [asked("a1")])
    before, won = await found(registry, "a1"), list[str]()

    async def change(number: int) -> None:
        if await registry.store(decided(before, f"d{number}")):
            won.append(f"d{number}")

    async with anyio.create_task_group() as group:
        for number in range(50):
            group.start_soon(change, number)
    assert len(won) == 1
    verdict = (await found(registry, "a1")).verdict
    assert verdict is not None
    assert verdict.decision_id == won[0]


async def test_a_withdrawal_and_a_decision_exclude_each_other(registry: Any) -> None:
    await registry.open("acme", [asked("a1"), asked("a2")])
    before = await found(registry, "a1")
    assert (await registry.withdraw("acme", "a1", "policy_changed")).reason == "policy_changed"
    assert not await registry.store(decided(before, "d1"))
    assert (await registry.withdraw("acme", "a1", "again")).reason == "policy_changed"
    won = decided(await found(registry, "a2"), "d2")
    assert await registry.store(won)
    assert await registry.withdraw("acme", "a2") == won


async def test_what_the_broker_has_is_remembered_whatever_else_changes(registry: Any) -> None:
    await registry.open("acme", [asked("a1")])
    before = await found(registry, "a1")
    assert not before.announced
    await registry.announced("acme", "a1")
    await registry.announced("acme", "nothing")
    assert (await found(registry, "a1")).announced
    assert await registry.store(decided(before, "d1"))
    assert (await found(registry, "a1")).announced
    assert await registry.find("acme", "nothing") is None


async def test_open_approvals_are_listed_oldest_first_by_tenant_or_all(registry: Any) -> None:
    await registry.open("acme", [asked("a1"), asked("a2")])
    await registry.open("globex/eu", [asked("g:1")])
    await registry.open("acme", [asked("a3")])
    await registry.withdraw("acme", "a2")
    ids = [(known.tenant, known.request.approval_id) for known in await registry.pending(None, limit=10)]
    assert ids == [("acme", "a1"), ("globex/eu", "g:1"), ("acme", "a3")]
    assert [known.request.approval_id for known in await registry.pending("acme", limit=1)] == ["a1"]
    assert list(await registry.pending("nobody", limit=10)) == []


async def test_pages_follow_each_other_without_a_gap(registry: Any) -> None:
    """Calls of one turn are asked about at one instant."""
    await registry.prepare()
    await registry.open("acme", [timed(f"a{number}", tool=f"tool {number % 2}") for number in range(7)])
    for query in ({}, {"tool": "tool 1"}):
        seen, cursor = list[str](), None
        while True:
            page = await registry.search(ApprovalQuery("acme", limit=2, cursor=cursor, **query))
            seen += [one.request.approval_id for one in page.approvals]
            cursor = page.cursor
            if cursor is None:
                break
        assert seen == [f"a{number}" for number in range(7) if not query or number % 2 == 1]


async def test_filters_narrow_the_list_and_each_other(registry: Any) -> None:
    await registry.prepare()
    rows = [("a1", "refund", 100), ("a2", "refund", 5_000), ("a3", "cancel: it, all", 5_000), ("a4", "refund", None)]
    await registry.open("acme", [asked(approval_id, tool=tool, amount=amount) for approval_id, tool, amount in rows])
    await registry.open("ACME", [asked("b1", tool="refund", amount=5_000)])
    assert await listed(registry, tool="refund") == ["a1", "a2", "a4"]
    assert await listed(registry, tool="cancel: it, all") == ["a3"]
    assert await listed(registry, tool="Refund") == []
    assert await listed(registry, min_amount=101) == ["a2", "a3"]
    assert await listed(registry, max_amount=100) == ["a1"]
    assert await listed(registry, tool="refund", min_amount=100, max_amount=5_000) == ["a1", "a2"]
    assert await listed(registry, tenant="ACME", min_amount=0) == ["b1"]
    assert await listed(registry, tenant=None, min_amount=5_000) == ["a2", "a3", "b1"]
    assert await registry.store(decided(await found(registry, "a2"), "d1"))
    assert await listed(registry, tool="refund", min_amount=0) == ["a1"]


async def test_age_counts_from_when_it_was_asked(registry: Any) -> None:
    await registry.prepare()
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    await registry.open("acme", [asked("new"), asked("old", requested_at=long_ago, amount=5)])
    assert await listed(registry) == ["old", "new"]
    assert await listed(registry, older_than_s=3_600) == ["old"]
    assert await listed(registry, older_than_s=3_600, min_amount=1) == ["old"]
    assert await listed(registry, older_than_s=3_600, min_amount=6) == []


async def test_what_is_due_comes_soonest_first_and_not_twice_at_once(registry: Any) -> None:
    later = timed("a2", remind_every_s=50)
    await registry.open("acme", [timed("a1"), later, asked("never")])
    assert list(await registry.due(at(49), limit=10)) == []
    assert [one.request.approval_id for one in await registry.due(at(100), limit=10)] == ["a2", "a1"]
    assert list(await registry.due(at(101), limit=10)) == []


async def test_what_nothing_came_of_is_due_again_rarer_each_time(registry: Any) -> None:
    await registry.open("acme", [timed("a1")])
    came = [second for second in range(100, 1_000, 10) if await registry.due(at(second), limit=10)]
    assert came == [100, 130, 190, 310, 550]


async def test_a_step_that_is_done_brings_the_next_moment_and_an_end_none(registry: Any) -> None:
    await registry.open("acme", [timed("a1")])
    [state] = await registry.due(at(100), limit=10)
    assert await registry.store(state.changed(reminders=1))
    assert list(await registry.due(at(199), limit=10)) == []
    [state] = await registry.due(at(200), limit=10)
    assert await registry.store(decided(state, "d1"))
    assert list(await registry.due(at(10_000), limit=10)) == []


async def test_what_is_put_back_is_as_it_was(registry: Any) -> None:
    open_ = refused(ApprovalState(tenant="acme", request=timed("a1"), announced=True), "d1")
    closed = decided(ApprovalState(tenant="globex", request=timed("g1")), "d2")
    await registry.restore([open_, closed])
    assert await found(registry, "a1") == open_
    assert await found(registry, "g1", "globex") == closed
    assert [one.request.approval_id for one in await registry.pending(None, limit=10)] == ["a1"]
    assert [one.request.approval_id for one in await registry.due(at(100), limit=10)] == ["a1"]
    await registry.restore([ApprovalState(tenant="acme", request=timed("a1"))])
    assert await found(registry, "a1") == open_


async def test_nothing_to_open_is_fine(registry: Any) -> None:
    await registry.open("acme", [])
    assert list(await registry.pending(None, limit=10)) == []


def question(query_id: str) -> HeldQuery:
    return HeldQuery(query_id, QueryAsked(thread_id="t1", text=f"Wo ist {query_id}? ✓"))


async def test_held_questions_come_back_in_order(held: Any) -> None:
    for query_id in ("q2", "q1", "q3"):
        await held.hold("t1", question(query_id))
    await held.hold("t2", question("other"))
    seen = []
    while (first := await held.first("t1")) is not None:
        seen.append(first)
        await held.drop("t1", first.query_id)
    assert seen == [question("q2"), question("q1"), question("q3")]
    assert (await held.first("t2")) == question("other")


async def test_a_question_is_held_once(held: Any) -> None:
    await held.hold("t1", question("q1"))
    await held.hold("t1", question("q2"))
    await held.hold("t1", question("q1"))
    assert await held.drop("t1", "q1")
    assert not await held.drop("t1", "q1")
    assert await held.first("t1") == question("q2")
    await held.drop("t1", "q2")
    assert await held.first("t1") is None


async def test_a_limit_of_nothing_lists_nothing(registry: Any) -> None:
    await registry.open("acme", [asked("a1")])
    assert list(await registry.pending(None, limit=0)) == []


async def test_a_question_that_is_called_off_stays_until_it_was_told_so(held: Any) -> None:
    for query_id in ("q1", "q2"):
        await held.hold("t1", question(query_id))
    assert await held.call_off("t1", "q2")
    assert await held.call_off("t1", "q2")
    assert not await held.call_off("t1", "q3")
    assert not await held.call_off("t2", "q1")
    await held.hold("t1", question("q2"))
    assert await held.all("t1") == [question("q1"), replace(question("q2"), is_called_off=True)]
    await held.drop("t1", "q1")
    assert (await held.first("t1")) == replace(question("q2"), is_called_off=True)
    assert await held.drop("t1", "q2")
    assert await held.all("t1") == []
