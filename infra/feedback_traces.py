"""Feedback as a span of its answer's trace, so that whoever looks at the trace sees what came of the answer."""

from typing import Final

from opentelemetry import trace
from opentelemetry.trace import Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from topics.feedback import Feedback

SPAN: Final = "feedback.given"
# The names that the GenAI conventions have for what somebody thought of an answer.
EVENT: Final = "gen_ai.evaluation.result"
NAME: Final = "user_feedback"
SCORES: Final = {"up": 1.0, "down": 0.0}


class FeedbackSpans:
    """Tells feedback to the tracer that is set up; without one nothing happens."""

    def __init__(self, tracer: Tracer | None = None) -> None:
        self._tracer = tracer or trace.get_tracer("sluice.feedback")

    def tell(self, feedback: Feedback, *, traceparent: str) -> None:
        """Put a span with the thumb into the trace. A note is a person's words, and stays out."""
        context = TraceContextTextMapPropagator().extract({"traceparent": traceparent})
        said: dict[str, str | float] = {"gen_ai.evaluation.name": NAME}
        if feedback.thumb is not None:
            said |= {"gen_ai.evaluation.score.label": feedback.thumb, "gen_ai.evaluation.score.value": SCORES[feedback.thumb]}
        with self._tracer.start_as_current_span(SPAN, context=context) as span:
            span.add_event(EVENT, said)
