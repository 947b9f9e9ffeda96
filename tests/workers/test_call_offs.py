"""A cancellation reaches the process that runs the query, whichever process got the record."""

from dataclasses import dataclass, field, replace

import anyio
import anyio.lowlevel
import pytest

from flows.agent.call_offs import CallOffs
from tests.fakes.agents import THREAD, World, one, only
from tests.fakes.call_offs import MemoryCallOffNotes
from tests.fakes.chat_model import Script, call, say
from tests.workers.desk import Desk, asked, called_off, decided
from topics.errors import LeaseBusyError, OutageError
from topics.events import (
    AnswerCompleted,
    AnswerDelta,
    AnswerFailed,
    AnswerHeld,
    ApprovalAccepted,
    ApprovalExecuted,
    ApprovalRequested,
)
from workers import call_offs
from workers.call_offs import SharedCallOffs
from workers.query import hear_query

REFUND = call(("c1", "refund", {"order": "A", "cents": 1}))
ENDLESS = say("I ", "never end", hangs=True)


@dataclass
class TwoProcesses:
    """One runs questions, the other what was approved. They share what outlives them, and nothing else."""

    questions: Desk
    decisions: Desk = field(init=False)

    def __post_init__(self) -> None:
        self.decisions = replace(self.questions, world=replace(self.questions.world, call_offs=CallOffs()), told=[])

    async def call_off(self, query_id: str | None = "q1") -> None:
        """The record is handled while the thread is at work, and will come again."""
        with pytest.raises(LeaseBusyError):
            await self.questions.handle(called_off(query_id))

    async def hear(self) -> None:
        """What the other process does every half second."""
        here = self.decisions.world.call_offs
        await SharedCallOffs(here, self.decisions.notes).hear(here.running_threads())


def processes(*turns) -> TwoProcesses:
    return TwoProcesses(Desk(World(script=Script(turns=list(turns)))))


async def approved(both: TwoProcesses, *, while_it_writes) -> list:
    """Ask, approve at the other process, and do something once that shows text."""
    request = one(ApprovalRequested, await both.questions.handle(asked("q1")))
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(both.decisions.handle, decided(request))
            while not only(AnswerDelta, both.decisions.told):
                await anyio.lowlevel.checkpoint()
            await while_it_writes()
    return both.decisions.told


@pytest.mark.parametrize("query_id", ["q1", None])
async def test_a_query_that_another_process_resumed_ends_in_its_model_call(query_id):
    both = processes(REFUND, ENDLESS, say("Fine."))

    async def call_off() -> None:
        await both.call_off(query_id)
        await both.hear()

    told = await approved(both, while_it_writes=call_off)
    assert one(ApprovalExecuted, told).status == "ok"
    assert one(AnswerFailed, told).code == "cancelled"
    assert only(AnswerCompleted, told) == []
    again = await both.questions.handle(called_off(query_id))
    assert one(AnswerFailed, again).identity() == one(AnswerFailed, told).identity()
    assert one(AnswerCompleted, await both.questions.handle(asked("q2"))).text == "Fine."


async def test_an_effect_that_has_begun_is_finished_and_told_and_nothing_follows_it():
    """P2: it is never half done, and who approved it hears what became of it."""
    both = processes(REFUND)
    request = one(ApprovalRequested, await both.questions.handle(asked("q1")))

    def meanwhile(_operation: str) -> None:
        both.decisions.world.call_offs.call_off(THREAD, "q1")

    both.decisions.world.service.before_effect = meanwhile
    told = await both.decisions.handle(decided(request))
    assert one(ApprovalExecuted, told).status == "ok"
    assert one(AnswerFailed, told).code == "cancelled"
    assert len(both.questions.world.effects()) == 1
    assert len(both.questions.world.script.prompts) == 1


async def test_what_was_approved_does_not_begin_once_it_is_called_off_and_its_approver_is_told():
    both = processes(REFUND)
    request = one(ApprovalRequested, await both.questions.handle(asked("q1")))
    async with both.questions.leases.hold(THREAD.checkpoint_id):
        await both.call_off()
    told = await both.decisions.handle(decided(request))
    assert one(ApprovalAccepted, told).standing == "won"
    assert one(ApprovalExecuted, told).status == "not_run"
    assert one(AnswerFailed, told).code == "cancelled"
    assert both.questions.world.effects() == []
    assert len(both.questions.world.script.prompts) == 1


async def test_a_cancellation_that_waits_behind_another_question_is_told_by_that_one():
    both = processes(REFUND, ENDLESS, say("Fine."))

    async def call_off_behind_q2() -> None:
        hear_query(called_off("q1"), call_offs=both.questions.world.call_offs)  # as it comes
        with pytest.raises(LeaseBusyError):
            await both.questions.handle(asked("q2"))
        await both.hear()

    told = await approved(both, while_it_writes=call_off_behind_q2)
    assert [(failed.query_id, failed.code) for failed in only(AnswerFailed, told)] == [("q1", "cancelled")]


async def test_a_held_question_that_another_process_came_to_is_called_off_before_the_model_is_asked():
    both = processes(REFUND, say("Done ", "with the first."))
    request = one(ApprovalRequested, await both.questions.handle(asked("q1")))
    one(AnswerHeld, await both.questions.handle(asked("q2")))
    async with both.questions.leases.hold(THREAD.checkpoint_id):
        await both.call_off("q2")
    told = await both.decisions.handle(decided(request))
    assert one(AnswerCompleted, told).query_id == "q1"
    assert [(failed.query_id, failed.code) for failed in only(AnswerFailed, told)] == [("q2", "cancelled")]
    assert len(both.questions.world.script.prompts) == 2


@pytest.mark.parametrize("query_id", ["q1", None])
async def test_a_question_that_comes_later_is_not_meant(query_id):
    both = processes(say("Hello."))
    async with both.questions.leases.hold(THREAD.checkpoint_id):
        await both.call_off(query_id)
    assert await both.questions.notes.noted([THREAD.checkpoint_id]) == [frozenset()]
    assert await both.questions.handle(called_off(query_id)) == []
    assert one(AnswerCompleted, await both.questions.handle(asked("q1"))).text == "Hello."


async def test_what_is_noted_is_heard_of_what_runs_here_after_an_outage_too(monkeypatch):
    monkeypatch.setattr(call_offs, "EVERY_S", 0.001)
    notes, here, other = MemoryCallOffNotes(), CallOffs(), replace(THREAD, thread_id="T-18")
    failures = [OutageError("gone"), OutageError("still gone")]

    class OutAtFirst(MemoryCallOffNotes):
        async def noted(self, threads):
            if failures:
                raise failures.pop()
            return await notes.noted(threads)

    for thread in (THREAD, other):
        await notes.note(thread.checkpoint_id, {"q1"})
    with anyio.fail_after(5), here.running(THREAD, "q1"):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(SharedCallOffs(here, OutAtFirst()).keep_hearing)
            while not here.is_off(THREAD, "q1"):
                await anyio.sleep(0.001)
            tasks.cancel_scope.cancel()
    assert not here.is_off(other, "q1")
