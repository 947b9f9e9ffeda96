"""A query's tree of spans: record, agent, nodes, models, searches, tools; each of its own tenant, none with a text."""

from typing import Any

import anyio
from opentelemetry.trace import SpanKind, StatusCode

from flows.agent.threads import ThreadRef
from tests.fakes.agents import World, one
from tests.fakes.chat_model import Script, call, say
from tests.infra.tracing.spans import attributes, catching, work_of
from topics.events import ApprovalRequested, QueryAsked

QUESTION = "I am jane.roe@example.test, what about order #W1?"
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


async def ask(world: World, tracing: Any, *, tenant: str = "acme", text: str = QUESTION) -> list[Any]:
    """As the runtime does it."""
    work = work_of(QueryAsked(thread_id="T-17", text=text), tenant=tenant, event_id=f"q-{tenant}", traceparent=TRACEPARENT)
    with tracing.records("sluice.query").handling([work]) as ended:
        payloads = await world.ask(text, thread=ThreadRef(tenant, "T-17"), query_id=work.event.id)
        ended[work] = None
    return payloads


def lookup_then_answer() -> Script:
    return Script(
        turns=[
            call(("c1", "search_articles", {"query": QUESTION}), ("c2", "read_order", {"order": QUESTION}), ("c3", "broken", {})),
            say("It is on its way."),
        ]
    )


async def test_every_step_of_a_query_is_a_span_under_its_record():
    async with catching() as (tracing, caught):
        await ask(World(script=lookup_then_answer(), callbacks=(tracing.callbacks,)), tracing)
    paths = {"/".join(caught.path(span)) for span in caught.spans}
    agent = "process queries/invoke_agent sluice"
    assert {
        "process queries",
        agent,
        f"{agent}/node model/model",
        f"{agent}/node search/retrieval articles",
        f"{agent}/node execute/execute_tool read_order",
        f"{agent}/node execute/execute_tool broken",
    } <= paths
    assert len(caught.named("model")) == 2
    assert {span.get_span_context().trace_id for span in caught.spans} == {int(TRACEPARENT.split("-")[1], 16)}


async def test_spans_hold_ids_and_names_of_the_conventions_and_no_text():
    """P11."""
    async with catching() as (tracing, caught):
        await ask(World(script=lookup_then_answer(), callbacks=(tracing.callbacks,)), tracing)
    record = caught.one("process")
    assert record.kind is SpanKind.CONSUMER
    assert attributes(record) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "queries",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 7,
        "messaging.consumer.group.name": "sluice.query",
        "messaging.message.id": "q-acme",
        "messaging.message.body.size": len(work_of(QueryAsked(thread_id="T-17", text=QUESTION)).record.value or b""),
        "cloudevents.event_type": "query.asked",
        "cloudevents.event_source": "test",
        "gen_ai.conversation.id": "T-17",
        "sluice.tenant": "acme",
        "sluice.attempt": 1,
    }
    assert [link.context.span_id for link in record.links] == [int(TRACEPARENT.split("-")[2], 16)]
    broken = caught.one("execute_tool broken")
    assert broken.status.status_code is StatusCode.ERROR
    assert attributes(broken)["error.type"] == "KeyError"
    assert [one for one in ("jane", "#W1", "on its way", "secret") if one in caught.texts()] == []


async def test_content_is_in_spans_only_when_it_is_asked_for_and_then_redacted():
    async with catching(trace_content=True) as (tracing, caught):
        await ask(World(script=lookup_then_answer(), callbacks=(tracing.callbacks,)), tracing)
    texts = caught.texts()
    assert "what about order #W1?" in texts
    assert "It is on its way." in texts
    assert "[email]" in texts
    assert "jane" not in texts


async def test_a_graph_that_waits_for_a_person_has_not_failed():
    async with catching() as (tracing, caught):
        script = Script(turns=[call(("c1", "refund", {"order": "#W1", "cents": 100}))])
        payloads = await ask(World(script=script, callbacks=(tracing.callbacks,)), tracing)
    assert one(ApprovalRequested, payloads)
    assert [span.name for span in caught.spans if span.status.status_code is StatusCode.ERROR] == []
    assert caught.one("node gate")


async def test_fifty_queries_of_two_tenants_at_once_mix_nothing():
    """Case 30: 0 missing, 0 mixed."""
    async with catching() as (tracing, caught), anyio.create_task_group() as tasks:
        for number in range(50):
            tenant = ("acme", "globex")[number % 2]
            world = World(script=lookup_then_answer(), callbacks=(tracing.callbacks,))

            async def query(world: World = world, tenant: str = tenant) -> None:
                await ask(world, tracing, tenant=tenant)

            tasks.start_soon(query)
    roots = {span.get_span_context().span_id: span for span in caught.named("process")}
    parents = {span.get_span_context().span_id: span for span in caught.spans}
    assert len(roots) == 50
    mixed = [
        span.name
        for span in caught.spans
        if span.get_span_context().span_id not in roots
        and attributes(span).get("sluice.tenant") != attributes(parents[span.parent.span_id])["sluice.tenant"]
    ]
    assert mixed == []
    assert {name: len(caught.named(name)) for name in ("model", "retrieval", "execute_tool read_order")} == {
        "model": 100,
        "retrieval": 50,
        "execute_tool read_order": 50,
    }
    assert tracing.callbacks.open_runs == 0


async def test_an_agent_without_tracing_makes_no_span_and_no_run():
    world = World(script=lookup_then_answer())
    assert await world.ask(QUESTION)
