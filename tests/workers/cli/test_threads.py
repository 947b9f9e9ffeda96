"""What may be called off and gone on with, and what is heard of it."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import anyio
import pytest

from tests.fakes.agents import THREAD
from tests.workers.desk import event
from topics.approval_state import ApprovalState
from topics.envelope import Event
from topics.errors import RejectedError, TimedOutError
from topics.events import AnswerCompleted, AnswerFailed, AnswerHeld, ApprovalRequested
from workers.cli import thread_changes, threads
from workers.cli.thread_changes import Told
from workers.threads import QueryView, ThreadView

REQUEST = ApprovalRequested(
    approval_id="a1", thread_id=THREAD.thread_id, query_id="q2", interrupt_id="i", tool="refund", tool_class="WRITE", arguments={},
    args_digest="aa", policy_version="1", graph_version="1", allowed_decisions=("approve", "reject"),
)  # fmt: skip


def query(query_id: str, outcome: str | None) -> QueryView:
    return QueryView(query_id, outcome, "", {}, (), None)


def view(*queries: QueryView, held: tuple[str, ...] = (), waits: bool = False) -> ThreadView:
    pending = (ApprovalState(tenant="acme", request=REQUEST),) if waits else ()
    return ThreadView("acme", THREAD.thread_id, "at work", "1", 1, 0, queries, pending, held, ())


def told(*wanted: str) -> Told:
    return Told("acme", THREAD.thread_id, frozenset(wanted))


def code_of(refused: pytest.ExceptionInfo[RejectedError]) -> str:
    return refused.value.reason_code


def test_what_is_open_is_the_last_question_that_began_and_those_that_wait():
    open_one = view(query("q1", "answered"), query("q2", None), held=("q3",))
    assert thread_changes._to_call_off(open_one, None) == {"q2", "q3"}
    assert thread_changes._to_call_off(open_one, "q3") == {"q3"}
    assert thread_changes._to_go_on_with(open_one) == {"q2", "q3"}


def test_a_question_that_nobody_knows_yet_may_be_called_off():
    assert thread_changes._to_call_off(view(), "q9") == {"q9"}


def test_what_has_ended_is_not_called_off():
    ended = view(query("q1", "answered"), query("q2", "cancelled"))
    with pytest.raises(RejectedError, match="q1 has ended, answered") as late:
        thread_changes._to_call_off(ended, "q1")
    with pytest.raises(RejectedError, match="no open question") as nothing:
        thread_changes._to_call_off(ended, None)
    assert (code_of(late), code_of(nothing)) == ("late", "nothing_open")


@pytest.mark.parametrize(
    ("there", "why"),
    [
        (view(), "no open question"),
        (view(query("q1", "answered")), "no open question"),
        (view(query("q2", None), waits=True), "a1"),
    ],
)
def test_where_nothing_is_left_to_a_worker_nothing_is_continued(there: ThreadView, why: str):
    with pytest.raises(RejectedError, match=why) as refused:
        thread_changes._to_go_on_with(there)
    assert code_of(refused) == "nothing_open"


def test_what_is_heard_of_a_thread_is_kept_until_all_that_was_meant_has_ended():
    def facts(query_id: str) -> dict[str, Any]:
        return {"thread_id": THREAD.thread_id, "query_id": query_id}

    one = told("q1", "q2")
    for payload in (
        AnswerHeld(**facts("q2"), waiting_for=()),
        AnswerCompleted(**facts("q3"), attempt=1, text="another's"),
        AnswerFailed(**facts("q1"), attempt=1, code="cancelled"),
    ):
        assert one.take(event("e", payload))
        assert not one.ended
    assert one.take(event("e", AnswerCompleted(**facts("q2"), attempt=1, text="x")))
    assert one.ended
    assert one.endings == {"q1": "cancelled", "q2": "answered"}


def test_what_people_are_asked_about_is_read_from_the_thread_before_and_after():
    one = told("q2")
    one.compare(view(query("q2", None), waits=True), view(replace(query("q2", "cancelled"), calls={"not_run": 1})))
    assert (one.waits_for, one.waits_no_more, one.calls) == ({}, {"a1": "refund"}, {"q2": {"not_run": 1}})
    one.endings = {"q2": "cancelled"}
    assert list(threads._told_lines(one)) == ["query q2: called off, 1 calls not_run", "  waits no more: refund, approval a1"]


@pytest.mark.parametrize(("unknown", "why"), [((), "is a query worker running"), (("q9",), "no open query q9.* is the id right")])
async def test_silence_is_told_by_what_it_is_about(unknown: tuple[str, ...], why: str, monkeypatch: pytest.MonkeyPatch):
    async def silence() -> AsyncGenerator[Event[Any]]:
        await anyio.sleep_forever()
        yield event("e", AnswerCompleted(thread_id="t", query_id="q", attempt=1, text="x"))

    async def see() -> ThreadView:
        return view()

    monkeypatch.setattr(thread_changes, "SILENT_FOR_S", 0.01)
    with pytest.raises(TimedOutError, match=why):
        await thread_changes._hear(silence(), told("q9"), see, unknown=unknown)


def test_other_threads_and_tenants_are_passed_over():
    """P8."""
    answer = AnswerCompleted(thread_id=THREAD.thread_id, query_id="q1", attempt=1, text="x")
    one = told("q1")
    assert not one.take(event("e", answer, tenant="globex"))
    assert not one.take(event("e", answer.model_copy(update={"thread_id": "T-18"})))
    assert not one.ended
