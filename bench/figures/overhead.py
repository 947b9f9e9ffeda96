"""What each layer adds to one call of a model: a bare request, a chain, a graph, a checkpointed one, the agent, all of Sluice.

Side by side in one run, against one model server at one pace, with the same number of queries in flight. Everything but the last
row runs in this process; the last is a worker process, and its time is from the question's publication to its answer's arrival.
"""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypedDict

import anyio
import httpx
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, AnyMessage, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph, add_messages

from bench import checkpointer, latency, rig
from bench.figures.bounds import hold
from flows.agent.threads import ThreadRef
from infra.collector import calm_collector
from infra.redis.checkpointer import HardenedRedisSaver
from topics.catalogue import ANSWERS, QUERIES
from topics.errors import TimedOutError
from topics.events import AnswerCompleted, QueryAsked
from workers.client import Client, open_client
from workers.demo.crew import crew
from workers.models import build_models
from workers.parts import Parts, build_parts

QUERIES_EACH: Final = 160
QUERIES_EACH_FULL: Final = 600
WARM_UP: Final = 24
IN_FLIGHT: Final = 4
FIRST_TOKEN_MS: Final = 50.0
TOKENS_PER_S: Final = 400.0
FIRST_DELTAS: Final = 60
CPU_OVER_AGENT_GOAL: Final = 2.0
WITHIN_S: Final = 180.0
TENANT: Final = "bench"
SYSTEM: Final = "You answer a customer's question."
ANSWER: Final = "Thank you for your message. We have looked into it, and everything on your account is as it should be now."
COLUMNS: Final = ("", "p50 ms", "p95 ms", "cpu ms/query", "cpu / bare request")

Ask = Callable[[str], Awaitable[None]]


class State(TypedDict):
    """A conversation."""

    messages: Annotated[list[AnyMessage], add_messages]


@dataclass(frozen=True, slots=True)
class Measured:
    """One row."""

    name: str
    key: str
    p50_ms: float
    p95_ms: float
    cpu_ms: float


async def run(*, full: bool) -> dict[str, Any]:
    """Measure every layer, and the wait from a model's first token to a reader. Prints the tables.

    Raises:
        FigureError: A query costs more than twice the CPU of its agent over the same checkpointer.
    """
    broker, said = rig.choose_broker(None)
    print(f"  {said}")
    count = QUERIES_EACH_FULL if full else QUERIES_EACH
    async with AsyncExitStack() as stack:
        host = await stack.enter_async_context(rig.rig(broker))
        control = await stack.enter_async_context(rig.model_control(host))
        parts = await stack.enter_async_context(build_parts(host.settings))
        model = build_models(host.settings, stack=stack).chat
        http = await stack.enter_async_context(httpx.AsyncClient(timeout=60.0, trust_env=False))
        members = await stack.enter_async_context(crew(host.data_dir))
        client = await stack.enter_async_context(open_client(host.settings, source="bench"))
        await members.start("worker", ["query"])
        await rig.until_assigned(members, ["worker"], partitions=2 * QUERIES.partitions)
        calm_collector()  # as a worker does
        await control.script(first_token_ms=FIRST_TOKEN_MS, tokens_per_s=TOKENS_PER_S, reply=ANSWER)
        layers: list[tuple[str, str, Ask]] = [
            ("bare request", "bare_http", bare(http, host.settings.model_base_url, host.settings.model_name)),
            ("LCEL chain", "chain", chain(model)),
            ("LangGraph graph", "graph", graph(model)),
            (
                "LangGraph graph, our checkpointer",
                "graph_redis",
                graph(model, saver=HardenedRedisSaver(parts.redis, keys=parts.keys)),
            ),
            ("Sluice's agent alone", "agent", agent(parts)),
        ]
        rows = [await measured(name, key, ask, count=count) for name, key, ask in layers]
        rows.append(await through_kafka(client, members.pid_of("worker"), count=count))
        deltas = await latency.first_deltas(client, control, count=latency.QUESTIONS_ASKED if full else FIRST_DELTAS)
    growth = await checkpointer.checkpoint_growth(full)
    figures = _figures(rows, deltas, queries=count, growth=growth)
    within = figures["overhead_cpu_over_agent"] <= CPU_OVER_AGENT_GOAL
    return hold(figures, cpu_is_at_most_twice_the_agents=within or not full)  # a few seconds of a shared machine prove nothing


def _figures(rows: Sequence[Measured], deltas: Sequence[float], *, queries: int, growth: Mapping[str, Any]) -> dict[str, Any]:
    bare_ms = rows[0].cpu_ms
    cells = [(row.name, row.p50_ms, row.p95_ms, row.cpu_ms, row.cpu_ms / bare_ms) for row in rows]
    rig.print_table(f"{queries:,} queries a layer, {IN_FLIGHT} in flight, one call of the model each", COLUMNS, cells)
    rig.print_table("First model token -> first delta read", latency.COLUMNS, [("ms", *latency.figures(deltas))])
    cpu = {row.key: row.cpu_ms for row in rows}
    over_agent, over_graph = cpu["sluice"] / cpu["agent"], cpu["sluice"] / cpu["graph_redis"]
    print(f"  a query costs {over_agent:.2f} x the CPU of its agent alone, {over_graph:.2f} x that of a graph of one node")
    figures: dict[str, Any] = {"overhead_queries": queries, "overhead_first_delta_p95_ms": round(rig.percentile(deltas, 95), 2)}
    for row in rows:
        figures |= {
            f"overhead_{row.key}_p50_ms": round(row.p50_ms, 2),
            f"overhead_{row.key}_p95_ms": round(row.p95_ms, 2),
            f"overhead_{row.key}_cpu_ms": round(row.cpu_ms, 2),
        }
    figures |= growth
    figures |= {"overhead_cpu_over_agent": round(over_agent, 2), "overhead_cpu_over_graph": round(over_graph, 2)}
    return figures


def bare(http: httpx.AsyncClient, base_url: str, model: str) -> Ask:
    """Stream one completion and read its lines, no more."""

    async def ask(text: str) -> None:
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]
        body = {"model": model, "stream": True, "messages": messages}
        async with http.stream("POST", f"{base_url}/chat/completions", json=body) as response:
            async for _ in response.aiter_lines():
                pass

    return ask


def chain(model: BaseChatModel) -> Ask:
    """Prompt, model, parser."""
    steps = ChatPromptTemplate([("system", SYSTEM), ("user", "{text}")]) | model | StrOutputParser()

    async def ask(text: str) -> None:
        async for _ in steps.astream({"text": text}, {"metadata": {"tenant": TENANT}}):
            pass

    return ask


def graph(model: BaseChatModel, *, saver: Any = None) -> Ask:
    """One node that calls the model and adds its answer to the conversation; its tokens are streamed."""

    async def turn(state: State, config: RunnableConfig) -> dict[str, Any]:
        prompt = [HumanMessage(SYSTEM), *state["messages"]]
        chunks = [chunk async for chunk in model.astream(prompt, config) if isinstance(chunk, AIMessageChunk)]
        return {"messages": [chunks[0] + chunks[1:]]}

    builder = StateGraph(State)
    builder.add_node("turn", turn)
    builder.add_edge(START, "turn")
    builder.add_edge("turn", END)
    compiled: Any = builder.compile(checkpointer=saver)

    async def ask(text: str) -> None:
        config = {"configurable": {"thread_id": f"graph-{text.split(maxsplit=1)[0]}"}, "metadata": {"tenant": TENANT}}
        how: dict[str, Any] = {} if saver is None else {"durability": "sync"}
        async for _ in compiled.astream({"messages": [HumanMessage(text)]}, config, stream_mode="messages", **how):
            pass

    return ask


def agent(parts: Parts) -> Ask:
    """The agent that a worker drives, with nothing around it."""

    async def ask(text: str) -> None:
        thread = ThreadRef(TENANT, f"agent-{text.split(maxsplit=1)[0]}")
        # The checkpointer wants to see the fence of a lease.
        await parts.redis.set(parts.keys.fence(thread.checkpoint_id), 1)
        async for _ in parts.agent.ask(thread, query_id=f"agent-{text.split(maxsplit=1)[0]}", text=text, user_id=None, fence=1):
            pass

    return ask


async def measured(name: str, key: str, ask: Ask, *, count: int, cpu_s: Callable[[], float] = time.process_time) -> Measured:
    """Ask `count` times, after a warm-up that does not count. `cpu_s` is what was used so far."""
    await _each([f"w{number}-{key} warms up." for number in range(WARM_UP)], ask)
    times_ms: list[float] = []

    async def timed(text: str) -> None:
        began_s = time.perf_counter()
        await ask(text)
        times_ms.append((time.perf_counter() - began_s) * 1000)

    began_cpu_s = cpu_s()
    await _each(_questions(key, count), timed)
    used_s = cpu_s() - began_cpu_s
    return Measured(name, key, rig.percentile(times_ms, 50), rig.percentile(times_ms, 95), used_s * 1000 / count)


def _questions(key: str, count: int) -> list[str]:
    """Small talk, which takes one call of the model. The first word names the thread."""
    return [f"{key}-{number} says hello. How are you today?" for number in range(count)]


async def _each(texts: Sequence[str], ask: Ask) -> None:
    waiting = iter(texts)

    async def slot() -> None:
        for text in waiting:
            await ask(text)

    async with anyio.create_task_group() as slots:
        for _ in range(IN_FLIGHT):
            slots.start_soon(slot)


async def through_kafka(client: Client, pid: int, *, count: int) -> Measured:
    """The same through a worker process: its CPU, and the time from publication to arrival.

    Raises:
        TimedOutError: Not all were answered.
    """
    answered: dict[str, anyio.Event] = {}

    async def ask(text: str) -> None:
        query_id = text.split(maxsplit=1)[0]
        answered[query_id] = anyio.Event()
        await client.publish(QueryAsked(thread_id=query_id, text=text), tenant=TENANT, event_id=query_id)
        await answered[query_id].wait()

    async def listen(events: Any) -> None:
        async for event in events:
            if isinstance(event.payload, AnswerCompleted) and event.payload.query_id in answered:
                answered[event.payload.query_id].set()

    async with client.watch([ANSWERS]) as events, anyio.create_task_group() as tasks:
        tasks.start_soon(listen, events)
        with anyio.move_on_after(WITHIN_S) as limit:
            row = await measured("all of Sluice", "sluice", ask, count=count, cpu_s=lambda: rig.cpu_s(pid))
        tasks.cancel_scope.cancel()
    if limit.cancelled_caught:
        raise TimedOutError(f"not all of {count} queries were answered within {WITHIN_S:g} s")
    return row
