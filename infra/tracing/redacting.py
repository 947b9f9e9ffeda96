"""The last gate before spans leave: every text in them is redacted, and what cannot be redacted is replaced by a marker (P11)."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import Link, Status

from infra.redaction import FAILED, Redactor, redacted_value
from infra.tracing import names

MARKED: Final = "sluice.redaction"
MAX_TEXT_CHARS: Final = 16_000
# What is ours to say, whatever failed: without these a span of a failure would say nothing.
_KEPT: Final = frozenset({names.TENANT, names.ATTEMPT, names.error_attributes.ERROR_TYPE, names.REASON})


class RedactingExporter(SpanExporter):
    """Hands redacted copies to another exporter. It runs in the exporter's thread, off the event loop."""

    def __init__(self, inner: SpanExporter, redactor: Redactor) -> None:
        self._inner = inner
        self._redact = redactor

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Redact and hand on. A span that cannot be redacted goes with its ids and times alone."""
        return self._inner.export([self._safe(span) for span in spans])

    def shutdown(self) -> None:
        """Close the other one."""
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Let the other one finish."""
        return self._inner.force_flush(timeout_millis)

    def _safe(self, span: ReadableSpan) -> ReadableSpan:
        try:
            redacted = self._redacted(span)
        except Exception:  # noqa: BLE001 -- a redactor of somebody's own: whatever it raises, the raw span must not leave
            return _bare(span)
        return _bare(span) if _has_failed(redacted) else redacted

    def _redacted(self, span: ReadableSpan) -> ReadableSpan:
        events = [Event(one.name, self._values(one.attributes), one.timestamp) for one in span.events]
        links = [Link(one.context, self._values(one.attributes)) for one in span.links]
        status = Status(span.status.status_code, self._text(span.status.description) if span.status.description else None)
        return _copy(span, self._text(span.name), self._values(span.attributes), events, links, status)

    def _values(self, attributes: Mapping[str, Any] | None) -> dict[str, Any]:
        return {name: redacted_value(value, self._text) for name, value in (attributes or {}).items()}

    def _text(self, text: str) -> str:
        return self._redact(text[:MAX_TEXT_CHARS])


def _has_failed(span: ReadableSpan) -> bool:
    texts = [
        span.name,
        *(span.attributes or {}).values(),
        *(value for one in span.events for value in (one.attributes or {}).values()),
    ]
    return any(text == FAILED for text in texts)


def _bare(span: ReadableSpan) -> ReadableSpan:
    kept = {name: value for name, value in (span.attributes or {}).items() if name in _KEPT}
    return _copy(
        span, FAILED, {**kept, MARKED: "failed"}, [], [Link(one.context) for one in span.links], Status(span.status.status_code)
    )


def _copy(
    span: ReadableSpan, name: str, attributes: dict[str, Any], events: list[Event], links: list[Link], status: Status
) -> ReadableSpan:
    return ReadableSpan(
        name=name,
        context=span.get_span_context(),
        parent=span.parent,
        resource=span.resource,
        attributes=attributes,
        events=events,
        links=links,
        kind=span.kind,
        status=status,
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=cast("Any", span.instrumentation_scope),
    )
