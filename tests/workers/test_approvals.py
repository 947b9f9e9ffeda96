"""Decisions: the first valid one wins, every other sender hears why not, and nothing runs that was not approved."""

from dataclasses import replace
from typing import Any

import pytest

from flows.agent.threads import GraphVersionError
from infra.redis.approvals import Registered
from tests.fakes.agents import THREAD, one, only
from tests.fakes.chat_model import call, say
from tests.workers.desk import Desk, asked, decided
from topics.errors import LeaseBusyError, OutageError
from topics.events import (
    AnswerCompleted,
    ApprovalAccepted,
    ApprovalDecided,
    ApprovalExecuted,
    ApprovalRefused,
    ApprovalRequested,
    Payload,
    Verdict,
)
from workers.approvals import judge


async def waiting(desk: Desk, *, tool: str = "refund", **arguments: Any) -> ApprovalRequested:
    """A thread that waits for one approval, and has its last words ready."""
    arguments = arguments or {"order": "A", "cents": 100}
    desk.world.script.turns = [call((None, tool, arguments)), say("done")]
    return one(ApprovalRequested, await desk.handle(asked("q1")))


def refusal(payloads: list[Payload]) -> tuple[str, str]:
    assert [type(payload) for payload in payloads] == [ApprovalRefused]
    found = one(ApprovalRefused, payloads)
    return found.code, found.decision_id


# The table


KNOWN = ApprovalRequested(
    approval_id="a1",
    thread_id="T-17",
    query_id="q1",
    interrupt_id="i1",
    tool="refund",
    tool_class="IRREVERSIBLE",
    arguments={"order": "A", "cents": 100},
    args_digest="digest",
    policy_version="1",
    graph_version="",
    allowed_decisions=("approve", "edit", "reject"),
)
WINNER = Verdict(decision_id="d0", decision="approve", approver="kim")
EDITED = {"order": "A", "cents": 50}


def verdict_of(decision: ApprovalDecided, decision_id: str) -> Verdict:
    return Verdict(
        decision_id=decision_id,
        decision=decision.decision,
        approver=decision.approver,
        arguments=decision.arguments if decision.decision == "edit" else None,
        message=decision.message,
    )


@pytest.mark.parametrize(
    ("changes", "registered", "refused"),
    [
        ({}, {}, None),
        ({"decision": "edit", "arguments": EDITED}, {}, None),
        ({"decision": "reject", "message": "no"}, {}, None),
        ({}, None, "unknown"),
        ({"thread_id": "T-18"}, {}, "mismatch"),
        ({"args_digest": "of something else"}, {}, "mismatch"),
        ({"decision": "respond", "message": "x"}, {}, "forbidden"),
        ({"decision": "edit"}, {}, "invalid_edit"),
        ({"decision": "edit", "arguments": EDITED, "tool": "wire_money"}, {}, "invalid_edit"),
        ({"decision": "edit", "arguments": {**EDITED, "more": 1}}, {}, "invalid_edit"),
        ({"decision": "edit", "arguments": {"order": "A", "cents": "50"}}, {}, "invalid_edit"),
        ({}, {"status": "withdrawn"}, "stale"),
        ({}, {"status": "expired"}, "expired"),
        ({}, {"status": "decided", "verdict": WINNER}, "duplicate"),
        ({"decision": "reject"}, {"status": "decided", "verdict": WINNER}, "late"),
        ({"decision": "edit", "arguments": EDITED}, {"status": "decided", "verdict": WINNER}, "late"),
        ({"args_digest": "of something else"}, {"status": "decided", "verdict": WINNER}, "duplicate"),
        ({}, {"graph_version": "of another build"}, "graph_version"),
        ({"args_digest": "of something else"}, {"graph_version": "of another build"}, "mismatch"),
    ],
)
async def test_why_a_decision_cannot_count(changes: dict[str, Any], registered: dict[str, Any] | None, refused: str | None):
    agent = Desk().world.agent()
    fields = dict(registered or {})
    request = KNOWN.model_copy(update={"graph_version": fields.pop("graph_version", agent.graph_version)})
    decision = decided(request, **{"decision": "approve", **changes}).payload
    known = None if registered is None else Registered("acme", request, **{"status": "pending", **fields})
    found = judge(known, decision, verdict_of(decision, "d1"), tenant="acme", agent=agent)
    assert (found[0] if found else None) == refused


async def test_the_winner_s_own_second_delivery_is_no_duplicate():
    agent = Desk().world.agent()
    request = KNOWN.model_copy(update={"graph_version": agent.graph_version})
    decision = decided(request).payload
    known = Registered("acme", request, "decided", verdict_of(decision, "d1"))
    assert judge(known, decision, verdict_of(decision, "d1"), tenant="acme", agent=agent) is None
    assert judge(known, decision, verdict_of(decision, "d2"), tenant="acme", agent=agent) == (
        "duplicate",
        "decided the same way before",
    )


# The handler


async def test_the_first_decision_wins_and_the_others_hear_of_it():
    desk = Desk()
    request = await waiting(desk)
    told = await desk.handle(decided(request, id_="d1"))
    assert [type(payload) for payload in told if isinstance(payload, ApprovalAccepted | ApprovalExecuted | AnswerCompleted)] == [
        ApprovalAccepted,
        ApprovalExecuted,
        AnswerCompleted,
    ]
    assert refusal(await desk.handle(decided(request, id_="d2"))) == ("duplicate", "d2")
    (late,) = await desk.handle(decided(request, "reject", id_="d3"))
    assert isinstance(late, ApprovalRefused)
    assert (late.code, late.winner and late.winner.decision_id) == ("late", "d1")
    assert len(desk.world.effects()) == 1


async def test_the_same_record_again_goes_on_instead_of_being_refused():
    desk = Desk()
    request = await waiting(desk)
    first = await desk.handle(decided(request))
    again = await desk.handle(decided(request))
    assert not only(ApprovalRefused, again)
    for kind in (ApprovalAccepted, ApprovalExecuted):
        assert only(kind, again) == only(kind, first)
    assert one(AnswerCompleted, again).text == "done"
    assert len(desk.world.effects()) == 1


async def test_another_tenant_s_approval_is_unknown():
    """P8."""
    desk = Desk()
    request = await waiting(desk)
    assert refusal(await desk.handle(decided(request, tenant="globex"))) == ("unknown", "d1")
    assert not desk.world.effects()


async def test_an_edit_that_is_not_what_the_tool_takes_changes_nothing_and_can_be_sent_again():
    """P4."""
    desk = Desk()
    request = await waiting(desk)
    wrong = decided(request, "edit", arguments={"order": "A", "cents": "1e400"}, id_="d1")
    assert refusal(await desk.handle(wrong))[0] == "invalid_edit"
    executed = one(ApprovalExecuted, await desk.handle(decided(request, "edit", arguments=EDITED, id_="d2")))
    assert executed.arguments == EDITED
    assert [arguments["cents"] for _, arguments in desk.world.effects()] == [50]


async def test_a_withdrawal_between_the_look_and_the_verdict_wins():
    """P3: the registry alone decides; what it did not record is not applied."""
    desk = Desk()
    request = await waiting(desk)
    decide = desk.registry.decide

    async def overtaken(*arguments: Any) -> Registered:
        await desk.registry.withdraw("acme", request.approval_id)
        return await decide(*arguments)

    desk.registry.decide = overtaken
    assert refusal(await desk.handle(decided(request))) == ("stale", "d1")
    assert not desk.world.effects()


async def test_a_lost_thread_is_told_before_a_verdict_is_recorded():
    """P3: a resume would start a ghost run; a verdict would stand for ever."""
    desk = Desk()
    request = await waiting(desk)
    await desk.world.saver.adelete_thread(THREAD.checkpoint_id)
    assert refusal(await desk.handle(decided(request))) == ("thread_gone", "d1")
    found = await desk.registry.find("acme", request.approval_id)
    assert found is not None
    assert (found.status, found.verdict) == ("pending", None)


async def test_another_build_s_thread_is_parked_and_stays_decidable():
    """Case 19: refused for its sender, a dead letter for the operator, and nothing recorded."""
    desk = Desk()
    request = await waiting(desk)
    key = ("acme", request.approval_id)
    today = desk.registry.approvals[key]
    other = request.model_copy(update={"graph_version": "of another build"})
    desk.registry.approvals[key] = replace(today, request=other)
    with pytest.raises(GraphVersionError):
        await desk.handle(decided(request))
    assert [payload.code for payload in only(ApprovalRefused, desk.told)] == ["graph_version"]
    assert desk.registry.approvals[key].status == "pending"
    desk.registry.approvals[key] = today  # rolled back
    assert one(ApprovalExecuted, await desk.handle(decided(request))).status == "ok"


async def test_a_decision_that_comes_before_its_request_is_registered_is_unknown_and_can_be_sent_again():
    desk = Desk()
    desk.world.script.turns = [call((None, "refund", {"order": "A", "cents": 1})), say("done")]
    open_, desk.registry.open = desk.registry.open, down
    with pytest.raises(OutageError):
        await desk.handle(asked("q1"))
    assert not only(ApprovalRequested, desk.told), "published before it was registered"
    (request,) = (await desk.world.agent().status(THREAD)).pending
    assert refusal(await desk.handle(decided(request, id_="too early"))) == ("unknown", "too early")
    desk.registry.open = open_
    assert one(ApprovalRequested, await desk.handle(asked("q1"))) == request
    assert one(ApprovalExecuted, await desk.handle(decided(request, id_="again"))).status == "ok"


async def down(*_: Any) -> None:
    raise OutageError("no Redis")


async def test_a_busy_thread_costs_a_decision_nothing():
    desk = Desk()
    request = await waiting(desk)
    async with desk.leases.hold(THREAD.checkpoint_id):
        with pytest.raises(LeaseBusyError):
            await desk.handle(decided(request))
    assert one(ApprovalExecuted, await desk.handle(decided(request))).status == "ok"
    assert len(desk.world.effects()) == 1


async def test_two_approvals_of_one_turn_are_decided_one_by_one_and_run_together():
    """Case 16."""
    desk = Desk()
    turn = call((None, "refund", {"order": "A", "cents": 1}), (None, "refund", {"order": "B", "cents": 2}))
    desk.world.script.turns = [turn, say("done")]
    first, second = only(ApprovalRequested, await desk.handle(asked("q1")))
    assert not only(ApprovalExecuted, await desk.handle(decided(first, "reject", id_="d1")))
    assert not desk.world.effects()
    executed = only(ApprovalExecuted, await desk.handle(decided(second, id_="d2")))
    assert {(done.arguments["order"], done.status) for done in executed} == {("A", "not_run"), ("B", "ok")}
    assert [arguments["order"] for _, arguments in desk.world.effects()] == ["B"]
