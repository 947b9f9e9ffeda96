"""Spans of records: one for each unit that is handled, one for each event that it publishes."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanKind, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from infra.kafka.assignment import Work
from infra.tracing import names, scope
from infra.tracing.scope import Price, Scope
from topics.envelope import Event
from topics.events import Payload
from topics.records import OutboundRecord

_PROPAGATOR: Final = TraceContextTextMapPropagator()
_HELD_IN_LINKS: Final = 128  # as many as a span keeps


class RecordTracer:
    """Traces the handling of records; fits `infra/kafka/execution.Tracer`."""

    def __init__(self, tracer: Tracer, *, group: str, prices: Mapping[str, Price], with_content: bool) -> None:
        self._tracer = tracer
        self._group = group
        self._prices = prices
        self._with_content = with_content

    @contextmanager
    def handling(self, works: Sequence[Work]) -> Generator[dict[Work, Exception | None]]:
        """Trace one unit for as long as the block runs; the block says how each record ended.

        One record goes on with its producer's trace, if it names one. A batch has several, and begins a trace of its own, with a
        link to each.
        """
        events = [work.event for work in works if work.event is not None]
        origins = [origin for event in events if (origin := origin_of(event)) is not None]
        parent = trace.set_span_in_context(trace.NonRecordingSpan(origins[0])) if len(works) == 1 and origins else Context()
        span = self._tracer.start_span(
            f"{names.PROCESS} {works[0].record.topic}",
            parent,
            SpanKind.CONSUMER,
            {**self._of_the_unit(works), **(self._of_the_record(works[0]) if len(works) == 1 else {})},
            [Link(origin) for origin in origins[:_HELD_IN_LINKS]],
        )
        shared = {names.TENANT: works[0].tenant} if len(works) == 1 else {}
        begun = Scope(self._tracer, span, shared, prices=self._prices, with_content=self._with_content)
        outcomes: dict[Work, Exception | None] = {}
        try:
            with scope.entered(begun), trace.use_span(span, record_exception=False, set_status_on_exception=False):
                yield outcomes
        finally:
            for error in list(filter(None, outcomes.values()))[:_HELD_IN_LINKS]:
                scope.fail(span, error)
            span.end()

    def traceparent(self) -> str | None:
        """What an event that is published now says of its trace; None where nothing is traced."""
        here = scope.current()
        if here is None:
            return None
        return traceparent_of(here.unit.span)

    @contextmanager
    def sending(self, record: OutboundRecord) -> Generator[None]:
        """Trace the handing over of an event; that the broker has it is part of the unit's span."""
        here = scope.current()
        if here is None:
            yield
            return
        span = here.unit.begin(f"{names.SEND} {record.topic}", _of_the_output(record), kind=SpanKind.PRODUCER).span
        try:
            yield
        except Exception as error:
            scope.fail(span, error)
            raise
        finally:
            span.end()

    def _of_the_unit(self, works: Sequence[Work]) -> dict[str, Any]:
        return {
            names.messaging.MESSAGING_SYSTEM: names.SYSTEM,
            names.messaging.MESSAGING_OPERATION_NAME: names.PROCESS,
            names.messaging.MESSAGING_OPERATION_TYPE: names.PROCESS,
            names.messaging.MESSAGING_DESTINATION_NAME: works[0].record.topic,
            names.messaging.MESSAGING_CONSUMER_GROUP_NAME: self._group,
            **({names.messaging.MESSAGING_BATCH_MESSAGE_COUNT: len(works)} if len(works) > 1 else {}),
        }

    def _of_the_record(self, work: Work) -> dict[str, Any]:
        record, event = work.record, work.event
        known: dict[str, Any] = {
            names.messaging.MESSAGING_DESTINATION_PARTITION_ID: str(record.partition),
            names.messaging.MESSAGING_KAFKA_OFFSET: record.offset,
            names.messaging.MESSAGING_MESSAGE_BODY_SIZE: len(record.value or b""),
            names.TENANT: work.tenant,
            names.ATTEMPT: work.starts,
        }
        return known if event is None else known | _of_the_event(event)


def origin_of(event: Event[Payload]) -> trace.SpanContext | None:
    """The span that an event says it comes from, if it says so in a form that can be read."""
    return context_of(event.traceparent)


def context_of(traceparent: str | None) -> trace.SpanContext | None:
    """Read a W3C traceparent; None when there is none, or it is not one."""
    if not traceparent:
        return None
    found = trace.get_current_span(_PROPAGATOR.extract({"traceparent": traceparent}, Context())).get_span_context()
    return found if found.is_valid else None


def traceparent_of(span: trace.Span) -> str:
    """Write a span as a W3C traceparent."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, trace.set_span_in_context(span))
    return carrier.get("traceparent", "")


def _of_the_event(event: Event[Payload]) -> dict[str, Any]:
    thread = getattr(event.payload, "thread_id", None)
    approval = getattr(event.payload, "approval_id", None)
    return {
        names.messaging.MESSAGING_MESSAGE_ID: event.id,
        names.cloudevents.CLOUDEVENTS_EVENT_TYPE: event.payload.TYPE,
        names.cloudevents.CLOUDEVENTS_EVENT_SOURCE: event.source,
        **({names.CORRELATION: event.correlation_id} if event.correlation_id else {}),
        **({names.gen_ai.GEN_AI_CONVERSATION_ID: thread} if isinstance(thread, str) else {}),
        **({names.APPROVAL: approval} if isinstance(approval, str) else {}),
    }


def _of_the_output(record: OutboundRecord) -> dict[str, Any]:
    headers = {name: (value or b"").decode(errors="replace") for name, value in record.headers}
    return {
        names.messaging.MESSAGING_SYSTEM: names.SYSTEM,
        names.messaging.MESSAGING_OPERATION_NAME: names.SEND,
        names.messaging.MESSAGING_OPERATION_TYPE: names.SEND,
        names.messaging.MESSAGING_DESTINATION_NAME: record.topic,
        names.messaging.MESSAGING_MESSAGE_BODY_SIZE: len(record.value or b""),
        **({names.messaging.MESSAGING_MESSAGE_ID: headers["ce_id"]} if "ce_id" in headers else {}),
        **({names.cloudevents.CLOUDEVENTS_EVENT_TYPE: headers["ce_type"]} if "ce_type" in headers else {}),
    }
