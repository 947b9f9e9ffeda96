"""One behaviour of the approval registry and of held questions: in memory, and in Redis."""

from dataclasses import replace
from typing import Any

import anyio
import pytest

from infra.redis.approvals import RedisApprovalRegistry
from infra.redis.held import HeldQuery, RedisHeldQueries
from tests.fakes.approvals import MemoryApprovalRegistry
from tests.fakes.held import MemoryHeldQueries
from topics.events import ApprovalRequested, QueryAsked, Verdict


@pytest.fixture(params=["memory", "redis"])
def registry(request: pytest.FixtureRequest) -> Any:
    if request.param == "memory":
        return MemoryApprovalRegistry()
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
        "arguments": {"order_id": "W1", "amount_cents": 4990, "note": "für dich ✓", "share": 0.1},
        "args_digest": "d1",
        "policy_version": "1",
        "graph_version": "1",
        "allowed_decisions": ("approve", "reject"),
    }
    return ApprovalRequested.model_validate(fields | changed)


def verdict(decision_id: str, decision: str = "approve") -> Verdict:
    return Verdict.model_validate({"decision_id": decision_id, "decision": decision, "approver": "kim"})


async def test_a_request_is_found_as_it_was_made(registry: Any) -> None:
    await registry.open("acme", [asked("a1")])
    found = await registry.find("acme", "a1")
    assert (found.tenant, found.request, found.status, found.verdict) == ("acme", asked("a1"), "pending", None)


async def test_another_tenants_approval_is_unknown(registry: Any) -> None:
    await registry.open("acme", [asked("a1")])
    assert await registry.find("globex", "a1") is None
    with pytest.raises(LookupError):
        await registry.decide("globex", "a1", verdict("d1"))
    assert (await registry.find("acme", "a1")).status == "pending"


async def test_a_known_request_stays_as_it_is(registry: Any) -> None:
    await registry.open("acme", [asked("a1")])
    await registry.decide("acme", "a1", verdict("d1"))
    await registry.open("acme", [asked("a1", tool="other"), asked("a2")])
    found = await registry.find("acme", "a1")
    assert (found.status, found.request.tool) == ("decided", "refund")
    assert [open_.request.approval_id for open_ in await registry.pending("acme", limit=10)] == ["a2"]


async def test_the_first_verdict_stands(registry: Any) -> None:
    await registry.open("acme", [asked("a1")])
    first = await registry.decide("acme", "a1", verdict("d1"))
    second = await registry.decide("acme", "a1", verdict("d2", "reject"))
    assert first == second
    assert (second.status, second.verdict) == ("decided", verdict("d1"))


async def test_fifty_verdicts_at_once_have_one_winner(registry: Any) -> None:
    await registry.open("acme", [asked("a1")])
    standing: list[str] = []

    async def decide(number: int) -> None:
        standing.append((await registry.decide("acme", "a1", verdict(f"d{number}"))).verdict.decision_id)

    async with anyio.create_task_group() as group:
        for number in range(50):
            group.start_soon(decide, number)
    assert len(standing) == 50
    assert len(set(standing)) == 1


@pytest.mark.parametrize("end", ["withdraw", "expire"])
async def test_an_ended_request_takes_no_verdict_and_a_decided_one_no_end(registry: Any, end: str) -> None:
    await registry.open("acme", [asked("a1"), asked("a2")])
    ended = await getattr(registry, end)("acme", "a1")
    assert ended.status == {"withdraw": "withdrawn", "expire": "expired"}[end]
    late = await registry.decide("acme", "a1", verdict("d1"))
    assert (late.status, late.verdict) == (ended.status, None)
    await registry.decide("acme", "a2", verdict("d2"))
    assert (await getattr(registry, end)("acme", "a2")).verdict == verdict("d2")


async def test_open_approvals_are_listed_oldest_first_by_tenant_or_all(registry: Any) -> None:
    await registry.open("acme", [asked("a1"), asked("a2")])
    await registry.open("globex/eu", [asked("g:1")])
    await registry.open("acme", [asked("a3")])
    await registry.decide("acme", "a2", verdict("d1"))
    ids = [(known.tenant, known.request.approval_id) for known in await registry.pending(None, limit=10)]
    assert ids == [("acme", "a1"), ("globex/eu", "g:1"), ("acme", "a3")]
    assert [known.request.approval_id for known in await registry.pending("acme", limit=1)] == ["a1"]
    assert await registry.pending("nobody", limit=10) == []


async def test_nothing_to_open_is_fine(registry: Any) -> None:
    await registry.open("acme", [])
    assert await registry.pending(None, limit=10) == []


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
