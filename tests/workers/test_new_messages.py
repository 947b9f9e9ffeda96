"""A new message on a thread that waits: held, or what waits is called off or superseded, by the rule of its calls. Case 18."""

from typing import Any

import pytest

from flows.approvals.policy import Allow, ApprovalPolicy, Ask
from tests.fakes.agents import THREAD, World, one, only
from tests.fakes.chat_model import Script, Turn, call, say
from tests.workers.desk import Desk, asked, decided, event
from topics.errors import LeaseBusyError
from topics.events import (
    AnswerCompleted,
    AnswerFailed,
    AnswerHeld,
    ApprovalDue,
    ApprovalExecuted,
    ApprovalExpired,
    ApprovalRefused,
    ApprovalRequested,
    ApprovalWithdrawn,
    OnNewMessage,
    Terms,
)

REFUND = call((None, "refund", {"order": "A", "cents": 100}))


def desk_with(rule: OnNewMessage, *turns: Turn, **terms: Any) -> Desk:
    said = Terms(on_new_message=rule, **terms)
    policy = ApprovalPolicy(judge=lambda tool, *_: Ask(tool.allowed_decisions, said) if tool.asks else Allow())
    desk = Desk(World(script=Script(turns=list(turns)), policy=policy))
    desk.clock = desk.world.clock
    return desk


def endings(desk: Desk) -> list[tuple[str, str]]:
    told = [payload for payload in desk.told if isinstance(payload, AnswerCompleted | AnswerFailed)]
    return [(one.query_id, one.text if isinstance(one, AnswerCompleted) else one.code) for one in told]


@pytest.mark.parametrize(
    ("rule", "code", "reason"), [("cancel", "cancelled", "new_message"), ("revise", "superseded", "superseded")]
)
async def test_what_waits_ends_and_the_new_message_runs_at_once(rule: OnNewMessage, code: str, reason: str):
    desk = desk_with(rule, REFUND, say("two"))
    request = one(ApprovalRequested, await desk.handle(asked("q1")))
    told = await desk.handle(asked("q2"))
    assert [type(payload) for payload in told[:2]] == [ApprovalWithdrawn, AnswerFailed]
    assert [(one.approval_id, one.reason) for one in only(ApprovalWithdrawn, told)] == [(request.approval_id, reason)]
    assert endings(desk) == [("q1", code), ("q2", "two")]
    assert not only(AnswerHeld, told)
    found = await desk.registry.find("acme", request.approval_id)
    assert (found.status, found.reason) == ("withdrawn", reason)
    refused = one(ApprovalRefused, await desk.handle(decided(request)))
    assert refused.code == "stale"
    assert desk.world.effects() == []


async def test_a_revised_request_names_the_one_before_and_is_decided_on_its_own():
    desk = desk_with("revise", REFUND, call((None, "refund", {"order": "A", "cents": 50})), say("done"))
    first = one(ApprovalRequested, await desk.handle(asked("q1")))
    second = one(ApprovalRequested, await desk.handle(asked("q2", "only half")))
    assert second.supersedes == first.approval_id
    assert one(ApprovalRefused, await desk.handle(decided(first))).code == "stale"
    await desk.handle(decided(second, id_="d2"))
    assert [arguments["cents"] for _, arguments in desk.world.effects()] == [50]


@pytest.mark.parametrize("rule", ["cancel", "revise"])
async def test_a_decision_that_won_before_the_message_is_applied_first(rule: OnNewMessage):
    """P3: its sender was told, or will be told, that it was accepted."""
    desk = desk_with(rule, REFUND, say("refunded"), say("two"))
    request = one(ApprovalRequested, await desk.handle(asked("q1")))
    async with desk.leases.hold(THREAD.checkpoint_id):
        with pytest.raises(LeaseBusyError):
            await desk.handle(decided(request))
    told = await desk.handle(asked("q2"))
    assert one(ApprovalExecuted, told).status == "ok"
    assert not only(ApprovalWithdrawn, told)
    assert endings(desk) == [("q1", "refunded"), ("q2", "two")]


async def test_a_message_that_was_held_keeps_its_place_before_the_one_that_makes_way():
    """The rule is the waiting call's: q2 was held by a call that holds, and q4 calls off what q2 asked."""
    hold, cancel = Terms(on_new_message="hold"), Terms(on_new_message="cancel")
    desk = desk_with("hold", REFUND, say("one"), call((None, "close_account", {"user": "u"})), say("three"), say("four"))
    desk.world.policy = ApprovalPolicy(
        judge=lambda tool, *_: Ask(tool.allowed_decisions, cancel if tool.name == "close_account" else hold)
    )
    request = one(ApprovalRequested, await desk.handle(asked("q1")))
    await desk.handle(asked("q2"))
    await desk.handle(asked("q3"))
    await desk.handle(decided(request))
    # q3 came before the call that waits now: it is no new message to it.
    assert await desk.held_ids(THREAD) == ["q3"]
    await desk.handle(asked("q4"))
    assert list(dict.fromkeys(endings(desk))) == [("q1", "one"), ("q2", "cancelled"), ("q3", "three"), ("q4", "four")]
    assert await desk.held_ids(THREAD) == []


async def test_a_message_that_is_delivered_again_calls_nothing_off_that_it_did_not_meet():
    desk = desk_with("cancel", say("one"), REFUND)
    await desk.handle(asked("q1"))
    request = one(ApprovalRequested, await desk.handle(asked("q2")))
    assert one(AnswerCompleted, await desk.handle(asked("q1"))).query_id == "q1"
    assert await desk.handle(asked("q2")) == [request]
    assert not only(ApprovalWithdrawn, desk.told)


@pytest.mark.parametrize("cut", range(1, 4))
async def test_a_message_whose_worker_dies_while_it_makes_way_makes_way_when_it_comes_again(cut: int):
    desk = desk_with("revise", REFUND, say("two"))
    await desk.handle(asked("q1"))
    run, taken = desk.payloads(asked("q2")), []
    async for payload in run:
        # The broker has none of it: what was told before the cut is lost.
        taken.append(payload)
        if len(taken) == cut:
            break
    await run.aclose()
    desk.world.script.turns = desk.world.script.turns or [say("two")]
    await desk.handle(asked("q2"))
    told = set(dict.fromkeys(endings(desk)))
    assert ("q2", "two") in told
    assert cut == 3 or ("q1", "superseded") in told  # at the third it had been acknowledged


async def test_time_that_ended_before_the_message_is_told_as_expired_and_not_as_withdrawn():
    desk = desk_with("revise", REFUND, say("two"), expires_after_s=60, at_expiry="cancel")
    request = one(ApprovalRequested, await desk.handle(asked("q1")))
    desk.world.clock.advance(61)
    due = event("t1", ApprovalDue(approval_id=request.approval_id, thread_id="T-17", step="expire"))
    async with desk.leases.hold(THREAD.checkpoint_id):
        with pytest.raises(LeaseBusyError):
            await desk.handle(due)
    await desk.handle(asked("q2"))
    await desk.handle(due)
    assert not only(ApprovalWithdrawn, desk.told)
    assert only(ApprovalExpired, desk.told)
    assert set(endings(desk)) == {("q1", "cancelled"), ("q2", "two")}


async def test_the_end_of_the_time_is_told_though_the_next_query_began_before_it_was():
    desk = desk_with("revise", REFUND, say("two"), expires_after_s=60, at_expiry="cancel")
    request = one(ApprovalRequested, await desk.handle(asked("q1")))
    desk.world.clock.advance(61)
    due = event("t1", ApprovalDue(approval_id=request.approval_id, thread_id="T-17", step="expire"))
    run = desk.payloads(due)
    async for payload in run:
        if isinstance(payload, AnswerFailed):
            break  # and the broker does not have it
    await run.aclose()
    await desk.handle(asked("q2"))
    assert ("q1", "cancelled") not in endings(desk)
    await desk.handle(due)
    assert ("q1", "cancelled") in endings(desk)


async def test_a_policy_that_changed_under_a_decision_asks_again_and_the_old_one_is_stale():
    desk = desk_with("hold", REFUND, say("done"))
    request = one(ApprovalRequested, await desk.handle(asked("q1")))
    judge = desk.world.policy.judge
    desk.world.policy = ApprovalPolicy("2", judge)
    told = await desk.handle(decided(request))
    refused, again = one(ApprovalRefused, told), one(ApprovalRequested, told)
    assert (refused.code, refused.reason) == ("stale", "policy_changed")
    assert (again.policy_version, again.supersedes) == ("2", request.approval_id)
    assert desk.world.effects() == []
    await desk.handle(decided(again, id_="d2"))
    assert len(desk.world.effects()) == 1
