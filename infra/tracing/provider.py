"""Tracing for one process: built from the settings, closed with the process."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import metadata
from typing import Final

import anyio
from anyio import to_thread
from langchain_core.callbacks import BaseCallbackHandler
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Tracer

from infra.redaction import Redactor
from infra.settings import Settings
from infra.tracing.callbacks import SpanCallbacks
from infra.tracing.records import RecordTracer
from infra.tracing.redacting import RedactingExporter
from infra.tracing.scope import Price

EXPORT_WITHIN_S: Final = 5.0
CLOSE_WITHIN_S: Final = 5.0
QUEUE_SPANS: Final = 8_192  # what does not fit is dropped: a collector that is away costs memory of this size and nothing else


@dataclass(frozen=True, slots=True)
class Tracing:
    """What the parts of a process are given."""

    tracer: Tracer
    callbacks: SpanCallbacks
    prices: Mapping[str, Price]
    with_content: bool

    def records(self, group: str) -> RecordTracer:
        """The tracer of one consumer group."""
        return RecordTracer(self.tracer, group=group, prices=self.prices, with_content=self.with_content)


def callbacks_of(tracing: Tracing | None) -> list[BaseCallbackHandler]:
    """What LangChain's runs are given."""
    return [tracing.callbacks] if tracing else []


def tracer_of(tracing: Tracing | None, group: str) -> RecordTracer | None:
    """What the runtime of a consumer group is given."""
    return tracing.records(group) if tracing else None


@asynccontextmanager
async def open_tracing(
    settings: Settings, redactor: Redactor, *, instance: str, exporter: SpanExporter | None = None
) -> AsyncGenerator[Tracing | None]:
    """Tracing for as long as the block runs; None without an endpoint. What was not sent when it ends has a bound to be sent in.

    Args:
        redactor: It never raises; see `infra/redaction.load_redactor`.
        instance: Tells this process from others of the service.
        exporter: In the place of OTLP over HTTP.
    """
    if exporter is None and settings.otlp_endpoint is None:
        yield None
        return
    inner = exporter or OTLPSpanExporter(
        endpoint=settings.otlp_endpoint, headers=_headers(settings) or None, timeout=EXPORT_WITHIN_S
    )
    provider = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(settings.trace_ratio)),
        resource=Resource.create(
            {"service.name": "sluice", "service.version": metadata.version("sluice"), "service.instance.id": instance}
        ),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(
        BatchSpanProcessor(RedactingExporter(inner, redactor), max_queue_size=QUEUE_SPANS, schedule_delay_millis=1_000)
    )
    try:
        yield Tracing(provider.get_tracer("sluice"), SpanCallbacks(), settings.model_prices, settings.trace_content)
    finally:
        with anyio.move_on_after(CLOSE_WITHIN_S, shield=True):
            await to_thread.run_sync(provider.shutdown, abandon_on_cancel=True)


def _headers(settings: Settings) -> dict[str, str]:
    given = settings.otlp_headers.get_secret_value() if settings.otlp_headers else ""
    pairs = (one.partition("=") for one in given.split(",") if "=" in one)
    return {name.strip(): value.strip() for name, _, value in pairs}
