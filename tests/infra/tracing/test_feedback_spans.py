"""Feedback is seen on the trace of the question it is about, and says nothing that a person wrote."""

from infra.tracing.feedback import FeedbackSpans
from tests.infra.tracing.spans import attributes, catching, work_of
from topics.events import FeedbackGiven
from topics.feedback import Feedback

ASKED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
GIVEN = FeedbackGiven(thread_id="T-17", query_id="q1", thumb="down", note="call me at 555-1234")
FEEDBACK = Feedback("f1", "q1", "down", "call me at 555-1234", None)


async def test_feedback_is_a_span_of_its_question_s_trace_linked_with_its_own_record():
    async with catching() as (tracing, caught):
        with tracing.records("group").handling([work_of(GIVEN)]):
            FeedbackSpans().tell(FEEDBACK, traceparent=ASKED)
    told, record = caught.one("feedback"), caught.one("process feedback")
    assert f"{told.get_span_context().trace_id:032x}" == ASKED.split("-")[1]
    assert f"{told.parent.span_id:016x}" == ASKED.split("-")[2]
    assert told.links[0].context.span_id == record.get_span_context().span_id
    assert f"{record.links[-1].context.trace_id:032x}" == ASKED.split("-")[1]
    (said,) = told.events
    assert said.attributes["gen_ai.evaluation.score.label"] == "down"
    assert said.attributes["gen_ai.evaluation.score.value"] == 0.0
    assert attributes(told)["sluice.tenant"] == "acme"
    assert "555-1234" not in caught.texts()


async def test_a_trace_that_cannot_be_read_is_told_nothing():
    async with catching() as (tracing, caught):
        with tracing.records("group").handling([work_of(GIVEN)]):
            FeedbackSpans().tell(FEEDBACK, traceparent="nonsense")
    assert [span.name for span in caught.spans] == ["process feedback"]


def test_where_nothing_is_traced_nothing_happens():
    FeedbackSpans().tell(FEEDBACK, traceparent=ASKED)
