"""Spans that a test caught, and how they hang together."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from infra.kafka.assignment import Assignment, Work
from infra.redaction import Redactor, guarded
from infra.settings import Settings
from infra.tracing.provider import Tracing, open_tracing
from topics.catalogue import Catalogue
from topics.envelope import decode, encode
from topics.events import Payload
from topics.records import RawRecord

CATALOGUE = Catalogue("")


@dataclass
class Caught:
    """What was exported, once the tracing is closed."""

    exporter: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    def named(self, start: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name.startswith(start)]

    def one(self, start: str) -> ReadableSpan:
        [found] = self.named(start)
        return found

    def path(self, span: ReadableSpan) -> list[str]:
        """Names from the root to a span."""
        by_id = {one.get_span_context().span_id: one for one in self.spans}
        names = [span.name]
        while span.parent is not None and span.parent.span_id in by_id:
            span = by_id[span.parent.span_id]
            names.insert(0, span.name)
        return names

    def texts(self) -> str:
        """Everything in every span, as one text."""
        return "\n".join(map(ReadableSpan.to_json, self.spans))


@asynccontextmanager
async def catching(redactor: Redactor | None = None, **settings: Any) -> AsyncGenerator[tuple[Tracing, Caught]]:
    caught = Caught()
    async with open_tracing(Settings(**settings), redactor or guarded(), instance="test", exporter=caught.exporter) as tracing:
        assert tracing is not None
        yield tracing, caught


def work_of(payload: Payload, *, tenant: str = "acme", event_id: str = "e-1", offset: int = 7, **headers: str) -> Work:
    """A record that a handler may be given."""
    out = encode(payload, catalogue=CATALOGUE, tenant=tenant, source="test", now=datetime.now(UTC), ordinal="0", event_id=event_id)
    added = tuple((f"ce_{name}", value.encode()) for name, value in headers.items())
    record = RawRecord(
        topic=out.topic, partition=0, offset=offset, key=out.key, value=out.value, headers=(*out.headers, *added), timestamp_ms=0
    )
    work = Work(record, Assignment(out.topic, 0, 1), decode(record, catalogue=CATALOGUE))
    work.starts = 1
    return work


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def walk(spans: tuple[ReadableSpan, ...]) -> Iterator[str]:
    yield from (span.name for span in spans)
