"""The negative control: LangGraph as its manual shows it, on the same saver, fed by the same topic. Nothing of ours decides.

    python -m bench.race.plain_worker BOOTSTRAP REDIS_URL REDIS_PREFIX BACK_OFFICE TOPIC GROUP

Each decision resumes its interrupt by id; the tool runs in the node after it. An error of a resume is LangGraph's own answer.
"""

import asyncio
import contextlib
import sys
from typing import Any, Final, TypedDict

import httpx
import orjson
from aiokafka import AIOKafkaConsumer
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from bench.race.ground import TOOL
from infra.redis.checkpointer import HardenedRedisSaver
from infra.redis.client import connect
from infra.redis.keys import Keys

THINK_S: Final = 0.1  # what a model or a slow shop takes, and often less


class State(TypedDict):
    """One call, and what a person said about it."""

    tenant: str
    arguments: dict[str, Any]
    verdict: str


def plain_graph(saver: HardenedRedisSaver, http: httpx.AsyncClient, back_office: str) -> Any:
    """Ask in one node, act in the next."""

    async def ask(state: State) -> dict[str, Any]:
        return {"verdict": interrupt(state["arguments"])}

    async def act(state: State) -> dict[str, Any]:
        await asyncio.sleep(THINK_S)
        if state["verdict"] == "approve":
            await http.post(f"{back_office}/v1/{state['tenant']}/operations/{TOOL}", json=state["arguments"])
        return {}

    graph = StateGraph(State)
    graph.add_node("ask", ask)
    graph.add_node("act", act)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", "act")
    graph.add_edge("act", END)
    return graph.compile(checkpointer=saver)


def config(thread: int) -> dict[str, Any]:
    """A thread's place in the saver."""
    return {"configurable": {"thread_id": f"plain-{thread}"}}


async def _resume(graph: Any, value: bytes) -> None:
    decision = orjson.loads(value)
    with contextlib.suppress(Exception):  # an error is its own answer: the control counts effects alone
        await graph.ainvoke(Command(resume={decision["interrupt"]: decision["decision"]}), config(decision["thread"]))


async def _main(bootstrap: str, redis_url: str, redis_prefix: str, back_office: str, topic: str, group: str) -> None:
    redis = connect(redis_url, timeout_s=10.0)
    consumer: Any = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    )
    await consumer.start()
    try:
        async with httpx.AsyncClient(timeout=20.0, trust_env=False) as http:
            graph = plain_graph(HardenedRedisSaver(redis, keys=Keys(redis_prefix)), http, back_office)
            async for record in consumer:
                await _resume(graph, record.value)
                await consumer.commit()
    finally:
        await consumer.stop()
        await redis.aclose()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
