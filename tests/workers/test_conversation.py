"""Questions on one thread: registered, held, run in order, called off."""

from typing import Any

import pytest

from flows.agent.threads import GraphVersionError
from tests.fakes.agents import THREAD, one, only
from tests.fakes.chat_model import Turn, call, say
from tests.fakes.ledger import CrashError
from tests.workers.desk import Desk, asked, called_off, decided
from topics.errors import LeaseBusyError, OutageError, UnavailableError
from topics.events import (
    AnswerCompleted,
    AnswerFailed,
    AnswerHeld,
    ApprovalExecuted,
    ApprovalRefused,
    ApprovalRequested,
    ApprovalWithdrawn,
)

REFUND = call((None, "refund", {"order": "A", "cents": 100}))


async def waiting(desk: Desk, *after: Turn) -> ApprovalRequested:
    desk.world.script.turns = [REFUND, *after]
    return one(ApprovalRequested, await desk.handle(asked("q1")))


def answered(desk: Desk) -> list[tuple[str, str]]:
    return [(payload.query_id, payload.text) for payload in only(AnswerCompleted, desk.told)]


async def test_a_question_is_answered_and_the_next_goes_on_with_the_thread():
    desk = Desk()
    desk.world.script.turns = [say("one"), say("two")]
    await desk.handle(asked("q1"))
    await desk.handle(asked("q2"))
    assert answered(desk) == [("q1", "one"), ("q2", "two")]
    assert len(desk.world.script.prompts[1]) > len(desk.world.script.prompts[0])


async def test_a_request_that_cannot_be_registered_is_not_published():
    """Who reads it could decide it at once, and would be told that it is unknown."""
    desk = Desk()
    desk.world.script.turns = [REFUND]

    async def down(*_: Any) -> None:
        raise OutageError("no Redis")

    open_, desk.registry.open = desk.registry.open, down
    with pytest.raises(OutageError):
        await desk.handle(asked("q1"))
    assert not only(ApprovalRequested, desk.told)
    desk.registry.open = open_
    await desk.handle(asked("q1"))
    (request,) = only(ApprovalRequested, desk.told)
    assert await desk.registry.find("acme", request.approval_id)


async def test_held_questions_are_told_so_and_run_in_their_order_after_the_decision():
    desk = Desk()
    request = await waiting(desk, say("refunded"), say("two"), say("three"))
    for query_id in ("q2", "q3"):
        (held,) = await desk.handle(asked(query_id))
        assert held == AnswerHeld(thread_id="T-17", query_id=query_id, waiting_for=(request.approval_id,))
    assert await desk.held_ids(THREAD) == ["q2", "q3"]
    await desk.handle(decided(request))
    assert answered(desk) == [("q1", "refunded"), ("q2", "two"), ("q3", "three")]
    assert await desk.held_ids(THREAD) == []


async def test_a_held_question_that_asks_itself_holds_the_others_back():
    desk = Desk()
    request = await waiting(desk, say("refunded"), REFUND, say("again"), say("three"))
    await desk.handle(asked("q2"))
    await desk.handle(asked("q3"))
    second = one(ApprovalRequested, await desk.handle(decided(request)))
    assert (second.query_id, await desk.held_ids(THREAD)) == ("q2", ["q3"])
    (held,) = only(AnswerHeld, await desk.handle(asked("q4")))
    assert held.waiting_for == (second.approval_id,)
    desk.world.script.turns.append(say("four"))
    await desk.handle(decided(second, id_="d2"))
    assert answered(desk) == [("q1", "refunded"), ("q2", "again"), ("q3", "three"), ("q4", "four")]


async def test_a_held_question_whose_run_fails_is_not_lost():
    """Its trigger fails and comes again; until then it stays where it is."""
    desk = Desk()
    request = await waiting(desk, say("refunded"), Turn(text=["tw"], error=UnavailableError("model")), say("two"))
    await desk.handle(asked("q2"))
    with pytest.raises(UnavailableError):
        await desk.handle(decided(request))
    assert await desk.held_ids(THREAD) == ["q2"]
    again = await desk.handle(decided(request))
    assert not only(ApprovalRefused, again)
    assert answered(desk)[-1] == ("q2", "two")
    assert await desk.held_ids(THREAD) == []
    assert len(desk.world.effects()) == 1


async def test_a_held_question_survives_a_run_that_was_cut_off_and_asks_again():
    """A question must leave the queue only when it has run, and not because the cut-off run went on in its place."""
    desk = Desk()
    request = await waiting(desk, Turn(error=CrashError("died")), REFUND, say("refunded"), say("two"), say("three"))
    await desk.handle(asked("q2"))
    with pytest.raises(CrashError):
        await desk.handle(decided(request))
    told = await desk.handle(asked("q3"))  # before the decision comes again
    second = one(ApprovalRequested, told)
    assert {held.query_id for held in only(AnswerHeld, told)} == {"q2", "q3"}
    assert (second.query_id, await desk.held_ids(THREAD)) == ("q1", ["q2", "q3"])
    await desk.handle(decided(request))
    await desk.handle(decided(second, id_="d2"))
    assert answered(desk) == [("q1", "refunded"), ("q2", "two"), ("q3", "three")]


async def test_a_question_that_is_delivered_again_tells_what_waits_and_is_not_held_behind_others():
    desk = Desk()
    request = await waiting(desk)
    await desk.handle(asked("q2"))
    assert await desk.handle(asked("q1")) == [request]
    assert await desk.held_ids(THREAD) == ["q2"]


async def test_two_questions_at_once_on_one_thread_take_turns():
    """The input and its replay topic are read by different workers."""
    desk = Desk()
    desk.world.script.turns = [say("one"), say("two")]
    running = desk.payloads(asked("q1"))
    await anext(running)
    with pytest.raises(LeaseBusyError):
        await desk.handle(asked("q2"))
    async for payload in running:
        desk.told.append(payload)
    await desk.handle(asked("q2"))
    assert answered(desk) == [("q1", "one"), ("q2", "two")]


# Calling off


async def test_a_question_that_is_over_and_comes_again_is_told_so_and_does_not_wait_behind_others():
    desk = Desk()
    desk.world.script.turns = [say("one"), REFUND, say("two"), say("three")]
    for query_id in ("q1", "q2", "q3"):
        await desk.handle(asked(query_id))
    told = await desk.handle(asked("q1"))
    assert one(AnswerCompleted, told).text == "one"
    assert only(AnswerHeld, told) == []
    assert await desk.held_ids(THREAD) == ["q3"]


async def test_a_held_question_that_is_called_off_never_runs():
    desk = Desk()
    request = await waiting(desk, say("refunded"), say("three"))
    await desk.handle(asked("q2"))
    await desk.handle(asked("q3"))
    (failed,) = await desk.handle(called_off("q2"))
    assert isinstance(failed, AnswerFailed)
    assert (failed.query_id, failed.code) == ("q2", "cancelled")
    await desk.handle(decided(request))
    assert answered(desk) == [("q1", "refunded"), ("q3", "three")]


async def test_a_waiting_question_that_is_called_off_withdraws_its_requests_and_lets_the_next_run():
    desk = Desk()
    request = await waiting(desk, say("two"))
    await desk.handle(asked("q2"))
    told = await desk.handle(called_off("q1"))
    assert [payload.approval_id for payload in only(ApprovalWithdrawn, told)] == [request.approval_id]
    assert [(payload.query_id, payload.code) for payload in only(AnswerFailed, told)] == [("q1", "cancelled")]
    assert answered(desk) == [("q2", "two")]
    (refused,) = await desk.handle(decided(request))
    assert isinstance(refused, ApprovalRefused)
    assert refused.code == "stale"
    assert not desk.world.effects()


async def test_the_registry_is_told_before_a_withdrawal_is_published():
    """Otherwise a decision between the two is accepted for an action that is gone."""
    desk = Desk()
    request = await waiting(desk)
    async for payload in desk.payloads(called_off("q1")):
        if isinstance(payload, ApprovalWithdrawn):
            found = await desk.registry.find("acme", request.approval_id)
            assert found is not None
            assert found.status == "withdrawn"


async def test_a_decision_that_won_before_the_call_off_is_told_as_not_run():
    """P3: its sender was told, or will be told, that it was accepted; what is no longer wanted does not begin."""
    desk = Desk()
    request = await waiting(desk)
    decision = decided(request)
    async with desk.leases.hold(THREAD.checkpoint_id):
        with pytest.raises(LeaseBusyError):
            await desk.handle(decision)
    told = await desk.handle(called_off("q1"))
    assert {payload.status for payload in only(ApprovalExecuted, told)} == {"not_run"}
    assert not only(ApprovalWithdrawn, told)
    assert {(payload.code, payload.identity()) for payload in only(AnswerFailed, told)} == {("cancelled", "q1")}
    again = await desk.handle(decision)
    assert not only(ApprovalRefused, again)
    assert one(ApprovalExecuted, again).status == "not_run"
    assert not desk.world.effects()


async def test_calling_off_with_one_decision_won_and_one_open_runs_neither():
    desk = Desk()
    desk.world.script.turns = [call((None, "refund", {"order": "A", "cents": 1}), (None, "refund", {"order": "B", "cents": 2}))]
    first, second = only(ApprovalRequested, await desk.handle(asked("q1")))
    async with desk.leases.hold(THREAD.checkpoint_id):
        with pytest.raises(LeaseBusyError):
            await desk.handle(decided(first))
    told = await desk.handle(called_off("q1"))
    assert {payload.approval_id: payload.status for payload in only(ApprovalExecuted, told)}[first.approval_id] == "not_run"
    assert [payload.approval_id for payload in only(ApprovalWithdrawn, told)] == [second.approval_id]
    assert not desk.world.effects()


@pytest.mark.parametrize("whose", ["q1", "another", None])
async def test_an_answer_stays_when_it_is_called_off_too_late(whose: str | None):
    desk = Desk()
    desk.world.script.turns = [say("one")]
    await desk.handle(asked("q1"))
    assert await desk.handle(called_off(whose)) == []
    assert answered(desk) == [("q1", "one")]


async def test_calling_off_names_no_question_and_means_all_that_are_not_answered():
    desk = Desk()
    await waiting(desk)
    await desk.handle(asked("q2"))
    told = await desk.handle(called_off(None))
    assert {payload.query_id for payload in only(AnswerFailed, told)} == {"q1", "q2"}
    assert await desk.held_ids(THREAD) == []


async def test_nobody_calls_off_another_tenant_s_question():
    """P8."""
    desk = Desk()
    request = await waiting(desk, say("refunded"))
    await desk.handle(asked("q2"))
    assert await desk.handle(called_off(None, tenant="globex")) == []
    assert await desk.held_ids(THREAD) == ["q2"]
    found = await desk.registry.find("acme", request.approval_id)
    assert found is not None
    assert found.status == "pending"


async def test_another_build_s_thread_cannot_be_called_off_and_nothing_is_withdrawn(monkeypatch: pytest.MonkeyPatch):
    desk = Desk()
    request = await waiting(desk)
    monkeypatch.setattr("flows.agent.graph.GRAPH_REVISION", "2")
    with pytest.raises(GraphVersionError):
        await desk.handle(called_off("q1"))
    found = await desk.registry.find("acme", request.approval_id)
    assert found is not None
    assert found.status == "pending"
