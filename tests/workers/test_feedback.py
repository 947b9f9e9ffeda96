"""What feedback does to a thread, and what it leaves alone."""

from dataclasses import replace
from typing import Any

from flows.agent.threads import ThreadRef
from tests.fakes.agents import THREAD, World, only
from tests.fakes.chat_model import Script, say
from tests.fakes.feedback import MemoryFeedback, ToldTraces
from tests.workers.desk import Desk, asked, called_off, event
from topics.envelope import Event
from topics.events import AnswerCompleted, FeedbackGiven, Payload
from topics.feedback import MAX_NOTE_CHARS, Feedback
from workers.feedback import handle_feedback, with_traces

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def given(id_: str = "f1", *, tenant: str = "acme", **fields: Any) -> Event[Any]:
    return event(id_, FeedbackGiven(thread_id="T-17", **{"query_id": "q1", "thumb": "down", **fields}), tenant=tenant)


async def handle(event_: Event[Any], book: MemoryFeedback, traces: ToldTraces | None = None) -> list[Payload]:
    return [payload async for payload in handle_feedback(event_, book=book, traces=traces or ToldTraces())]


async def test_feedback_lands_on_its_thread_once_per_event_and_publishes_nothing():
    book = MemoryFeedback()
    for _ in range(2):
        assert await handle(given(note="wrong order"), book) == []
    assert await book.of(THREAD.checkpoint_id) == [Feedback("f1", "q1", "down", "wrong order", None)]


async def test_feedback_of_one_tenant_is_on_no_thread_of_another():
    """P8: two tenants may have threads of one name."""
    book = MemoryFeedback()
    await handle(given(tenant="globex"), book)
    assert await book.of(THREAD.checkpoint_id) == []
    assert len(await book.of(ThreadRef("globex", "T-17").checkpoint_id)) == 1


async def test_feedback_is_told_to_the_trace_of_its_question_once():
    book, traces = MemoryFeedback(), ToldTraces()
    await book.remember_trace(THREAD.checkpoint_id, "q1", TRACE)
    for one in (given(), given(), given("f2", query_id="q2"), given("f3", query_id=None)):
        await handle(one, book, traces)
    assert traces.told == [("f1", TRACE)]


async def test_a_question_that_is_traced_leaves_its_trace_for_feedback_to_come():
    desk, book = Desk(World(script=Script(turns=[say("Fine."), say("Good.")]))), MemoryFeedback()
    handler = with_traces(desk.payloads, book=book)
    told: list[Payload] = []
    for one in (replace(asked("q1"), traceparent=TRACE), asked("q2"), replace(called_off("q1"), traceparent=TRACE)):
        told += [payload async for payload in handler(one)]
    assert [answer.text for answer in only(AnswerCompleted, told)] == ["Fine.", "Good."]
    assert book.traces == {(THREAD.checkpoint_id, "q1"): TRACE}


async def test_a_very_long_note_is_cut_and_what_no_store_takes_is_cleaned():
    book = MemoryFeedback()
    await handle(given(note="\x00" + "x" * (MAX_NOTE_CHARS + 50)), book)
    (kept,) = await book.of(THREAD.checkpoint_id)
    assert kept.note == "x" * MAX_NOTE_CHARS
