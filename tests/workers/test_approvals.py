"""Decisions: the first valid one wins, every other sender hears why not, and nothing runs that was not approved."""

from contextlib import aclosing
from typing import Any

import pytest

from flows.agent.threads import GraphVersionError
from flows.approvals.policy import ApprovalPolicy
from tests.fakes.agents import THREAD, one, only
from tests.fakes.chat_model import call, say
from tests.workers.desk import Desk, asked, called_off, decided
from topics.approval_state import ApprovalState
from topics.errors import LeaseBusyError, OutageError
from topics.events import (
    AnswerCompleted,
    ApprovalAccepted,
    ApprovalAmended,
    ApprovalExecuted,
    ApprovalRefused,
    ApprovalRequested,
    ApprovalWithdrawn,
    Payload,
    Terms,
)


async def waiting(desk: Desk, *, tool: str = "refund", **arguments: Any) -> ApprovalRequested:
    """A thread that waits for one approval, and has its last words ready."""
    arguments = arguments or {"order": "A", "cents": 100}
    desk.world.script.turns = [call((None, tool, arguments)), say("done")]
    return one(ApprovalRequested, await desk.handle(asked("q1")))


def refusal(payloads: list[Payload]) -> tuple[str, str]:
    assert [type(payload) for payload in payloads] == [ApprovalRefused]
    found = one(ApprovalRefused, payloads)
    return found.code, found.decision_id


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
    executed = one(ApprovalExecuted, await desk.handle(decided(request, "edit", arguments={"order": "A", "cents": 50}, id_="d2")))
    assert executed.arguments == {"order": "A", "cents": 50}
    assert [arguments["cents"] for _, arguments in desk.world.effects()] == [50]


async def test_a_withdrawal_between_the_look_and_the_verdict_wins():
    """P3: the registry alone decides; what it did not record is not applied."""
    desk = Desk()
    request = await waiting(desk)
    store = desk.registry.store

    async def overtaken(state: ApprovalState) -> bool:
        desk.registry.store = store
        await desk.registry.withdraw("acme", request.approval_id)
        return await store(state)

    desk.registry.store = overtaken
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
    desk.registry.approvals[key] = today.model_copy(update={"request": other})
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


# Votes


QUORUM = Terms(roles=("refunds",), quorum=2)


async def needing(desk: Desk, terms: Terms, **more: Any) -> ApprovalRequested:
    """A thread that waits under these terms."""
    request = await waiting(desk)
    changed = request.model_copy(update={"terms": terms, **more})
    key = ("acme", request.approval_id)
    desk.registry.approvals[key] = desk.registry.approvals[key].model_copy(update={"request": changed})
    desk.verifier.roles = {"ana": {"refunds"}, "bo": {"refunds"}, "cy": {"cfo"}}
    return changed


async def test_nothing_runs_until_enough_people_have_said_yes():
    desk = Desk()
    request = await needing(desk, QUORUM)
    told = await desk.handle(decided(request, id_="d1", approver="ana"))
    assert [type(payload) for payload in told] == [ApprovalAccepted]
    first = one(ApprovalAccepted, told)
    assert (first.standing, first.votes, first.needed, first.key_id, first.roles) == ("counted", 1, 2, "ana-key", ("refunds",))
    assert not desk.world.effects()
    assert one(ApprovalExecuted, await desk.handle(decided(request, id_="d2", approver="bo"))).status == "ok"
    assert await desk.handle(decided(request, id_="d1", approver="ana")) == told, "answered the same again"
    assert len(desk.world.effects()) == 1


async def test_a_vote_whose_key_is_revoked_before_the_second_does_not_help_it():
    desk = Desk()
    request = await needing(desk, QUORUM)
    await desk.handle(decided(request, id_="d1", approver="ana"))
    desk.verifier.revoked.add("ana-key")
    answer = one(ApprovalAccepted, await desk.handle(decided(request, id_="d2", approver="bo")))
    assert (answer.standing, answer.votes) == ("counted", 1)
    assert not desk.world.effects()


async def test_what_cannot_be_shown_is_refused_with_its_reason_and_nothing_is_looked_up_twice():
    desk = Desk()
    request = await waiting(desk)
    desk.verifier.forged = {"eve": "bad_signature"}
    forged = decided(request, id_="d1", approver="eve")
    refused = one(ApprovalRefused, await desk.handle(forged))
    assert (refused.code, refused.reason) == ("forbidden", "bad_signature")
    desk.verifier.forged = {}
    assert await desk.handle(forged) == [refused]
    assert desk.verifier.verified == 1
    assert not desk.world.effects()
    assert one(ApprovalExecuted, await desk.handle(decided(request, id_="d2"))).status == "ok"


async def test_who_asked_cannot_decide():
    desk = Desk()
    request = await waiting(desk)
    assert request.requester == "u-9"
    refused = one(ApprovalRefused, await desk.handle(decided(request, approver="u-9")))
    assert (refused.code, refused.reason) == ("forbidden", "requester")


async def test_an_edit_that_two_must_agree_to_runs_as_it_was_edited():
    """P4: and its digest is that of what runs."""
    desk = Desk()
    request = await needing(desk, QUORUM)
    arguments = {"order": "A", "cents": 50}
    told = await desk.handle(decided(request, "edit", id_="d1", approver="ana", arguments=arguments))
    amended = one(ApprovalAmended, told)
    assert [type(payload) for payload in told] == [ApprovalAmended, ApprovalAccepted]
    assert (amended.arguments, amended.proposed_by, amended.terms.quorum) == (arguments, "ana", 2)
    again = await desk.handle(decided(request, "edit", id_="d1", approver="ana", arguments=arguments))
    assert again == told
    agreed = await desk.handle(decided(request, id_="d2", approver="bo", args_digest=amended.args_digest))
    executed = one(ApprovalExecuted, agreed)
    assert (executed.status, executed.arguments, executed.args_digest) == ("ok", arguments, amended.args_digest)


async def test_a_request_whose_worker_died_before_publishing_it_is_published_with_the_first_decision():
    desk = Desk()
    desk.world.script.turns = [call((None, "refund", {"order": "A", "cents": 1})), say("done")]
    async with aclosing(desk.payloads(asked("q1"))) as payloads:
        async for payload in payloads:
            if isinstance(payload, ApprovalRequested):
                break  # registered; the broker never had it
    [known] = await desk.registry.pending("acme", limit=10)
    assert not known.announced
    told = await desk.handle(decided(known.request))
    assert [type(payload) for payload in told[:2]] == [ApprovalRequested, ApprovalAccepted]
    assert one(ApprovalRequested, told) == known.request
    assert not only(ApprovalRequested, await desk.handle(decided(known.request)))


async def test_a_request_whose_worker_died_before_publishing_it_is_published_before_it_is_withdrawn():
    desk = Desk()
    desk.world.script.turns = [call((None, "refund", {"order": "A", "cents": 1}))]
    async with aclosing(desk.payloads(asked("q1"))) as payloads:
        async for payload in payloads:
            if isinstance(payload, ApprovalRequested):
                break
    told = await desk.handle(called_off("q1"))
    [request, withdrawn] = [one for one in told if isinstance(one, ApprovalRequested | ApprovalWithdrawn)]
    assert isinstance(request, ApprovalRequested)
    assert withdrawn.approval_id == request.approval_id
    assert not only(ApprovalRequested, await desk.handle(called_off("q1")))


async def test_why_an_approval_was_withdrawn_is_told_as_it_stands():
    """P12: whoever took it back died behind it, and the next one calls its query off for a reason of its own."""
    desk = Desk()
    request = await waiting(desk)
    await desk.registry.withdraw("acme", request.approval_id, "new_message")
    assert one(ApprovalWithdrawn, await desk.handle(called_off("q1"))).reason == "new_message"


async def test_a_decision_whose_answer_no_event_can_carry_is_refused_before_it_is_recorded():
    """P3: recorded and never told, it would stand in everybody's way."""
    desk = Desk()
    request = await waiting(desk)
    for id_, said, why in (
        ("d-message", {"decision": "reject", "message": "x" * 990_000}, ("forbidden", "too_long")),
        ("d-name", {"decision": "reject", "approver": "x" * 990_000}, ("forbidden", "too_long")),
        ("d-edit", {"decision": "edit", "arguments": {"order": "x" * 990_000, "cents": 1}}, ("invalid_edit", "invalid_arguments")),
    ):
        (refused,) = await desk.handle(decided(request, id_=id_, **said))
        assert isinstance(refused, ApprovalRefused)
        assert (refused.code, refused.reason) == why
    assert one(ApprovalAccepted, await desk.handle(decided(request, id_="d2"))).standing == "won"


async def test_two_decisions_at_once_are_counted_one_after_the_other():
    """P3: whoever stores second begins again from what the first left."""
    desk = Desk()
    request = await waiting(desk)
    store, rival = desk.registry.store, decided(request, "reject", id_="rival")

    async def overtaken(state: ApprovalState) -> bool:
        desk.registry.store = store
        assert one(ApprovalAccepted, await desk.handle(rival)).decision == "reject"
        return await store(state)

    desk.registry.store = overtaken
    refused = one(ApprovalRefused, await desk.handle(decided(request, id_="d1")))
    assert (refused.code, refused.winner and refused.winner.decision_id) == ("late", "rival")
    assert not desk.world.effects()


# Another policy


async def test_a_decision_under_an_older_policy_runs_nothing_and_is_asked_again():
    """P4."""
    desk = Desk()
    old = await waiting(desk)
    desk.world.policy = ApprovalPolicy(version="2")
    told = await desk.handle(decided(old, id_="d1"))
    refused, again = one(ApprovalRefused, told), one(ApprovalRequested, told)
    assert (refused.code, refused.reason) == ("stale", "policy_changed")
    assert one(ApprovalWithdrawn, told).approval_id == old.approval_id
    assert (again.approval_id != old.approval_id, again.policy_version) == (True, "2")
    assert not desk.world.effects()
    assert only(ApprovalRefused, await desk.handle(decided(old, id_="d1"))) == [refused], "answered the same again"
    assert one(ApprovalExecuted, await desk.handle(decided(again, id_="d2"))).status == "ok"
    assert len(desk.world.effects()) == 1


async def test_who_may_decide_only_by_the_policy_of_now_brings_the_question_to_it():
    desk = Desk()
    old = await needing(desk, Terms(people=("gone",)))
    desk.world.policy = ApprovalPolicy(version="2")
    told = await desk.handle(decided(old, approver="ana"))
    assert one(ApprovalRefused, told).reason == "policy_changed"
    assert one(ApprovalExecuted, await desk.handle(decided(one(ApprovalRequested, told), id_="d2", approver="ana"))).status == "ok"


async def test_a_forged_decision_brings_nothing_to_another_policy():
    desk = Desk()
    old = await waiting(desk)
    desk.world.policy, desk.verifier.forged = ApprovalPolicy(version="2"), {"eve": "unknown_key"}
    told = await desk.handle(decided(old, approver="eve"))
    assert [type(payload) for payload in told] == [ApprovalRefused]
    assert (await desk.registry.find("acme", old.approval_id)).status == "pending"


async def test_a_worker_that_dies_while_it_asks_again_finishes_when_the_decision_comes_again():
    for steps in range(1, 4):
        desk = Desk()
        old = await waiting(desk)
        desk.world.policy = ApprovalPolicy(version="2")
        async with aclosing(desk.payloads(decided(old, id_="d1"))) as payloads:
            for _ in range(steps):
                await anext(payloads)
        told = await desk.handle(decided(old, id_="d1"))
        assert one(ApprovalRefused, told).reason == "policy_changed"
        assert one(ApprovalWithdrawn, told).approval_id == old.approval_id
        again = one(ApprovalRequested, told)
        assert one(ApprovalExecuted, await desk.handle(decided(again, id_="d2"))).status == "ok"
        assert len(desk.world.effects()) == 1
