"""Feedback on the trace of its question, so that whoever looks at an answer's trace sees what came of it."""

from typing import Final

from opentelemetry.trace import Link, NonRecordingSpan, set_span_in_context

from infra.tracing import names, scope
from infra.tracing.records import context_of
from topics.feedback import Feedback

SPAN: Final = "feedback"
RELATION: Final = "feedback"
NAME: Final = "user_feedback"
SCORES: Final = {"up": 1.0, "down": 0.0}


class FeedbackSpans:
    """Tells feedback to traces while a record is followed; where nothing is traced, nothing happens."""

    def tell(self, feedback: Feedback, *, traceparent: str) -> None:
        """Put a span with the thumb into the question's trace, and link the record's own span with it.

        A note is a person's words, and stays out.
        """
        here, asked = scope.current(), context_of(traceparent)
        if here is None or asked is None:
            return
        said: dict[str, str | float] = {names.gen_ai.GEN_AI_EVALUATION_NAME: NAME}
        if feedback.thumb is not None:
            said[names.gen_ai.GEN_AI_EVALUATION_SCORE_LABEL] = feedback.thumb
            said[names.gen_ai.GEN_AI_EVALUATION_SCORE_VALUE] = SCORES[feedback.thumb]
        own, relation = here.unit.span, {names.RELATION: RELATION}
        own.add_link(asked, relation)
        context = set_span_in_context(NonRecordingSpan(asked))
        span = here.tracer.start_span(SPAN, context, attributes=dict(here.shared), links=[Link(own.get_span_context(), relation)])
        span.add_event("gen_ai.evaluation.result", said)
        span.end()
