"""Records on their way: links, failures, what is published, and what leaves when it cannot be redacted."""

from collections.abc import AsyncGenerator, Awaitable
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from infra.clock import SystemClock
from infra.kafka.execution import Executor
from infra.kafka.routes import Route
from infra.redaction import FAILED, guarded
from infra.settings import Settings
from infra.tracing.model_calls import model_call
from infra.tracing.provider import callbacks_of, open_tracing, tracer_of
from infra.tracing.redacting import MARKED
from tests.infra.test_redaction import CASE_40
from tests.infra.tracing.spans import CATALOGUE, attributes, catching, work_of
from topics.catalogue import QUERIES, TICKETS
from topics.errors import MalformedError, UnavailableError
from topics.events import AnswerCompleted, AnswerDelta, QueryAsked, TicketOpened, TicketTriaged
from topics.records import OutboundRecord

FIRST = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
SECOND = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SECRET = "; ".join(CASE_40)


class Told:
    """A publisher that keeps what it is given."""

    def __init__(self) -> None:
        self.records: list[OutboundRecord] = []

    async def send(self, record: OutboundRecord) -> Awaitable[Any]:
        self.records.append(record)

        async def acknowledged() -> None:
            pass

        return acknowledged()


def executor(tracing: Any) -> tuple[Executor, Told]:
    told = Told()
    return Executor(told, CATALOGUE, SystemClock(), "sluice/query", 10.0, tracer_of(tracing, "sluice.query")), told


def traceparents(told: Told) -> set[str]:
    return {(value or b"").decode() for record in told.records for name, value in record.headers if name == "ce_traceparent"}


async def answer(event: Any) -> AsyncGenerator[Any]:
    with model_call("some-model", "http://127.0.0.1:8000/v1") as call:
        call.counted(10, 5)
    thread = event.payload.thread_id
    yield AnswerDelta(thread_id=thread, query_id=event.id, attempt=1, sequence=0, text=SECRET)
    yield AnswerCompleted(thread_id=thread, query_id=event.id, attempt=1, text=SECRET, outcome="answered")


async def test_what_is_published_names_the_span_that_handled_its_cause_and_deltas_have_no_span():
    async with catching() as (tracing, caught):
        run, told = executor(tracing)
        work = work_of(QueryAsked(thread_id="T-17", text=SECRET), traceparent=FIRST)
        assert await run.run(Route(QUERIES, answer), [work]) == {work: None}
    handled = caught.one("process queries").get_span_context()
    assert traceparents(told) == {f"00-{handled.trace_id:032x}-{handled.span_id:016x}-01"}
    [sent] = caught.named("send")
    assert sent.name == "send answers"
    assert sent.kind is SpanKind.PRODUCER
    assert sent.parent is not None
    assert sent.parent.span_id == handled.span_id
    assert attributes(sent)["cloudevents.event_type"] == "answer.completed"


async def test_a_call_of_a_provider_has_the_conventions_names():
    async with catching(model_prices={"some-model": {"input_usd_cents": 15, "output_usd_cents": 60}}) as (tracing, caught):
        run, _ = executor(tracing)
        await run.run(Route(QUERIES, answer), [work_of(QueryAsked(thread_id="T-17", text=SECRET))])
    called = caught.one("chat some-model")
    assert called.kind is SpanKind.CLIENT
    assert attributes(called) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "some-model",
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
        "server.address": "127.0.0.1",
        "server.port": 8000,
        "sluice.cost_microcents": 10 * 15 + 5 * 60,
        "sluice.tenant": "acme",
    }


async def test_a_batch_is_one_span_with_a_link_to_each_producer_s():
    async def triage(events: Any) -> AsyncGenerator[Any]:
        for event in events:
            yield (
                event,
                UnavailableError("the model is away")
                if event.tenant == "globex"
                else TicketTriaged(ticket_id="T-1", intent="i", priority="low", needs_person=False, summary="s"),
            )

    works = [
        work_of(TicketOpened(ticket_id="T-1", body=SECRET), traceparent=FIRST),
        work_of(TicketOpened(ticket_id="T-2", body=SECRET), tenant="globex", event_id="e-2", traceparent=SECOND),
        work_of(TicketOpened(ticket_id="T-3", body=SECRET), event_id="e-3", traceparent="no traceparent"),
    ]
    async with catching() as (tracing, caught):
        run, told = executor(tracing)
        await run.run(Route(TICKETS, batch_handler=triage), works)
    span = caught.one("process tickets")
    assert span.parent is None
    assert [f"{link.context.trace_id:032x}" for link in span.links] == [FIRST.split("-")[1], SECOND.split("-")[1]]
    assert attributes(span)["messaging.batch.message_count"] == 3
    assert attributes(span)["error.type"] == "unavailable"
    assert len(traceparents(told)) == 1


async def test_a_record_that_nobody_understands_has_a_span_with_its_reason():
    async with catching() as (tracing, caught):
        run, _ = executor(tracing)
        work = work_of(QueryAsked(thread_id="T-17", text=SECRET))
        work.event = None
        run.refuse({work: MalformedError("the value is not JSON", code="bad_json")})
    span = caught.one("process queries")
    assert attributes(span)["sluice.reason"] == "bad_json"
    assert span.status.status_code is StatusCode.ERROR


@pytest.mark.parametrize("fails", [True, False])
async def test_texts_are_redacted_before_they_leave_and_marked_when_that_fails(fails):
    """Case 40: a redactor that raised used to let the raw text through."""

    def broken(text: str) -> str:
        raise RuntimeError(text)

    async def fail(_event: Any) -> AsyncGenerator[Any]:
        raise UnavailableError(SECRET)
        yield

    async with catching(guarded(broken) if fails else guarded()) as (tracing, caught):
        run, _ = executor(tracing)
        await run.run(Route(QUERIES, fail), [work_of(QueryAsked(thread_id="T-17", text="x"), event_id=SECRET)])
    [span] = caught.spans
    texts = span.to_json()
    assert [one for one in (*CASE_40, "sk-test-123") if one in texts] == []
    assert attributes(span)["error.type"] == "unavailable"
    assert attributes(span)["sluice.tenant"] == "acme"
    assert (span.name, attributes(span).get(MARKED)) == ((FAILED, "failed") if fails else ("process queries", None))
    assert span.get_span_context().is_valid


async def test_without_an_endpoint_nothing_is_traced_and_nothing_is_given():
    async with open_tracing(Settings(), guarded(), instance="test") as tracing:
        assert tracing is None
        run, told = executor(tracing)
        work = work_of(QueryAsked(thread_id="T-17", text="x"), traceparent=FIRST)
        assert await run.run(Route(QUERIES, answer), [work]) == {work: None}
    assert callbacks_of(tracing) == []
    assert traceparents(told) == {FIRST}  # as it came: somebody else may follow it


async def test_a_share_of_the_traces_is_kept_and_one_that_was_begun_keeps_its_own_word():
    exporter = InMemorySpanExporter()
    async with open_tracing(Settings(trace_ratio=0), guarded(), instance="test", exporter=exporter) as tracing:
        run, _ = executor(tracing)
        await run.run(Route(QUERIES, answer), [work_of(QueryAsked(thread_id="T-17", text="x"))])
        await run.run(Route(QUERIES, answer), [work_of(QueryAsked(thread_id="T-17", text="x"), traceparent=FIRST)])
    assert {f"{span.get_span_context().trace_id:032x}" for span in exporter.get_finished_spans()} == {FIRST.split("-")[1]}
