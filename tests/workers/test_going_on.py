"""query.continued: what no record goes on with any more is gone on with, and nothing twice (P1, P2)."""

from contextlib import suppress
from typing import Any

import pytest

from flows.agent import graph
from flows.agent.threads import GraphVersionError, ThreadRef
from flows.approvals.policy import ApprovalPolicy
from tests.fakes.agents import THREAD, World, one, only
from tests.fakes.approvals import MemoryApprovalRegistry
from tests.fakes.chat_model import Script, call, say
from tests.workers.desk import Desk, asked, called_off, continued, decided
from tests.workers.test_moments import due_of, timed_out
from tests.workers.test_new_messages import desk_with as desk_that
from topics.approval_state import ApprovalState
from topics.errors import LeaseBusyError, OutageError, UnavailableError
from topics.events import (
    AnswerCompleted,
    AnswerFailed,
    AnswerHeld,
    ApprovalAccepted,
    ApprovalExecuted,
    ApprovalRequested,
    ApprovalWithdrawn,
    OnNewMessage,
)
from workers.conversation import CALLED_OFF

NOTE = call(("c1", "add_note", {"text": "n"}))
REFUND = call(("c1", "refund", {"order": "A", "cents": 1}))
TWO_REFUNDS = call(("c1", "refund", {"order": "A", "cents": 1}), ("c2", "refund", {"order": "B", "cents": 1}))
GONE = say(error=UnavailableError("gone"))


def desk_with(*turns) -> Desk:
    return Desk(World(script=Script(turns=list(turns))))


async def lost(desk: Desk, record) -> None:
    """Its record fails, and never comes again."""
    with pytest.raises((UnavailableError, LeaseBusyError, OutageError)):
        await desk.handle(record)


class DiesBehindWithdrawal(MemoryApprovalRegistry):
    """Whoever takes an approval back does not live to tell its thread."""

    async def withdraw(self, tenant: str, approval_id: str, reason: str = "") -> ApprovalState:
        await super().withdraw(tenant, approval_id, reason)
        raise OutageError("gone")


async def lost_behind_withdrawal(desk: Desk, record) -> None:
    desk.registry.__class__ = DiesBehindWithdrawal
    await lost(desk, record)
    desk.registry.__class__ = MemoryApprovalRegistry


async def test_a_step_that_was_left_open_is_continued_and_its_effect_does_not_run_again():
    desk = desk_with(NOTE, GONE, say("Noted."))
    await lost(desk, asked("q1"))
    assert len(desk.world.effects()) == 1
    assert (await desk.world.agent().status(THREAD)).open_step
    assert one(AnswerCompleted, await desk.handle(continued())).text == "Noted."
    replayed = await desk.handle(asked("q1"))
    assert one(AnswerCompleted, replayed).text == "Noted."
    assert len(desk.world.effects()) == 1


async def test_a_decision_that_won_and_was_not_applied_is_applied_once():
    desk = desk_with(REFUND, say("Refunded."))
    decision = decided(one(ApprovalRequested, await desk.handle(asked("q1"))))
    async with desk.leases.hold(THREAD.checkpoint_id):
        await lost(desk, decision)
    told = await desk.handle(continued())
    assert one(ApprovalExecuted, told).status == "ok"
    assert one(AnswerCompleted, told).text == "Refunded."
    await desk.handle(decision)
    await desk.handle(continued())
    assert len(desk.world.effects()) == 1


async def test_the_end_of_an_approval_s_time_that_the_thread_was_not_told_is_told():
    desk = desk_with(REFUND)
    request = await timed_out(desk, "cancel")
    async with desk.leases.hold(THREAD.checkpoint_id):
        await lost(desk, due_of(request))
    told = await desk.handle(continued())
    assert one(AnswerFailed, told).code == "cancelled"
    assert desk.world.effects() == []


async def test_a_decision_that_wins_beside_an_end_of_time_is_told_what_became_of_it_and_is_not_withdrawn():
    """P3."""
    desk = desk_with(TWO_REFUNDS)
    first, second = only(ApprovalRequested, await desk.handle(asked("q1")))
    await desk.registry.store((await desk.registry.find("acme", first.approval_id)).changed(status="expired"))
    decisions: list[Any] = [decided(second)]

    class DecidedMeanwhile(MemoryApprovalRegistry):
        async def find(self, tenant: str, approval_id: str) -> ApprovalState | None:
            found = await super().find(tenant, approval_id)
            while approval_id == second.approval_id and decisions:
                with suppress(LeaseBusyError):
                    await desk.handle(decisions.pop())
            return found

    desk.registry.__class__ = DecidedMeanwhile
    told = await desk.handle(continued())
    assert [(one.approval_id, one.standing) for one in only(ApprovalAccepted, desk.told)] == [(second.approval_id, "won")]
    assert [(one.approval_id, one.status) for one in only(ApprovalExecuted, told)] == [(second.approval_id, "not_run")]
    assert only(ApprovalWithdrawn, told) == []
    assert one(AnswerFailed, told).code == "cancelled"


async def test_what_was_taken_back_and_whose_thread_was_not_told_is_called_off():
    """P1: nobody can decide it any more, so nothing else would end the question."""
    desk = desk_with(TWO_REFUNDS, say("two"))
    requests = only(ApprovalRequested, await desk.handle(asked("q1")))
    one(AnswerHeld, await desk.handle(asked("q2")))
    await lost_behind_withdrawal(desk, called_off("q1"))
    told = await desk.handle(continued())
    assert [one.reason for one in only(ApprovalWithdrawn, told)] == [CALLED_OFF] * len(requests)
    assert one(AnswerFailed, told).code == "cancelled"
    assert one(AnswerCompleted, told).text == "two"
    assert {state.status for state in desk.registry.approvals.values()} == {"withdrawn"}
    assert desk.world.effects() == []


@pytest.mark.parametrize(("rule", "code"), [("cancel", "cancelled"), ("revise", "superseded")])
async def test_what_gave_way_to_a_new_message_that_was_lost_ends_by_the_rule_of_its_calls(rule: OnNewMessage, code: str):
    desk = desk_that(rule, REFUND, say("two"))
    await desk.handle(asked("q1"))
    await lost_behind_withdrawal(desk, asked("q2"))
    assert one(AnswerFailed, await desk.handle(continued())).code == code
    assert one(AnswerCompleted, await desk.handle(asked("q2"))).text == "two"


async def test_what_was_taken_back_for_a_new_policy_is_asked_again():
    desk = desk_with(REFUND)
    request = one(ApprovalRequested, await desk.handle(asked("q1")))
    desk.world.policy = ApprovalPolicy(version="2")
    await lost_behind_withdrawal(desk, decided(request))
    told = await desk.handle(continued())
    assert [one.policy_version for one in only(ApprovalRequested, told)] == ["1", "2"]
    assert one(ApprovalWithdrawn, told).approval_id == request.approval_id


@pytest.mark.parametrize("goes_on", [True, False])
async def test_what_was_taken_back_for_a_policy_that_is_gone_again_is_asked_again(*, goes_on: bool):
    """P1: a worker with the new policy died, and one with the old policy gets its record."""
    desk = desk_with(REFUND, say("Refunded."))
    request = one(ApprovalRequested, await desk.handle(asked("q1")))
    desk.world.policy = ApprovalPolicy(version="2")
    await lost_behind_withdrawal(desk, decided(request))
    desk.world.policy = ApprovalPolicy(version="1")
    told = await desk.handle(continued() if goes_on else decided(request))
    assert one(ApprovalWithdrawn, told).approval_id == request.approval_id
    again = only(ApprovalRequested, told)[-1]
    assert (again.policy_version, again.supersedes) == ("1", request.approval_id)
    assert one(ApprovalExecuted, await desk.handle(decided(again, id_="d2"))).status == "ok"
    assert len(desk.world.effects()) == 1


async def test_questions_that_wait_on_a_free_thread_run_in_their_order():
    desk = desk_with(REFUND, say("one"), GONE, say("two"), say("three"))
    request = one(ApprovalRequested, await desk.handle(asked("q1")))
    for query_id in ("q2", "q3"):
        one(AnswerHeld, await desk.handle(asked(query_id)))
    await lost(desk, decided(request))
    told = await desk.handle(continued())
    assert list(dict.fromkeys(answer.query_id for answer in only(AnswerCompleted, told))) == ["q2", "q3"]
    assert await desk.held_ids(THREAD) == []


async def test_a_request_whose_worker_died_before_it_was_registered_is_registered_and_told():
    desk = desk_with(REFUND)
    request = one(ApprovalRequested, await desk.world.ask())  # by the agent alone: no worker took it
    assert await desk.registry.find("acme", request.approval_id) is None
    assert one(ApprovalRequested, await desk.handle(continued())).approval_id == request.approval_id
    assert (await desk.registry.find("acme", request.approval_id)).status == "pending"


async def test_what_waits_for_people_goes_on_waiting():
    desk = desk_with(REFUND)
    request = one(ApprovalRequested, await desk.handle(asked("q1")))
    assert await desk.handle(continued()) == [request]
    assert desk.world.effects() == []
    assert (await desk.registry.find("acme", request.approval_id)).status == "pending"


async def test_a_thread_that_is_finished_is_told_again_and_one_that_is_unknown_is_not_begun():
    desk = desk_with(say("Hello."))
    assert await desk.handle(continued()) == []
    assert not (await desk.world.agent().status(THREAD)).exists
    first = one(AnswerCompleted, await desk.handle(asked("q1")))
    (again,) = only(AnswerCompleted, await desk.handle(continued()))
    assert (again.text, again.identity()) == (first.text, first.identity())
    assert len(desk.world.script.prompts) == 1


async def test_nobody_goes_on_with_another_tenant_s_thread():
    """P8."""
    desk = desk_with(NOTE, GONE)
    await lost(desk, asked("q1"))
    assert await desk.handle(continued(tenant="globex")) == []
    assert not (await desk.world.agent().status(ThreadRef("globex", "T-17"))).exists


async def test_another_build_s_open_step_is_left_alone(monkeypatch):
    desk = desk_with(NOTE, GONE, say("Noted."))
    await lost(desk, asked("q1"))
    with monkeypatch.context() as changed:
        changed.setattr(graph, "GRAPH_REVISION", "2")
        with pytest.raises(GraphVersionError):
            await desk.handle(continued())
    assert one(AnswerCompleted, await desk.handle(continued())).text == "Noted."
