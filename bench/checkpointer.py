"""What a checkpointed step costs in Python: ours, the stock Redis saver, and memory, side by side in one process.

Ours encodes each message once and keeps the encoded form, so that a step pays for what is new and for a copy of the rest.

Run: uv run python -m bench.checkpointer [--steps 10] [--rounds 3]
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, TypedDict

import anyio
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.redis.aio import AsyncRedisSaver
from langgraph.graph import START, StateGraph, add_messages
from redis.asyncio import Redis

from bench.rig import print_table
from infra.local.redis_server import redis_server
from infra.redis.checkpointer import HardenedRedisSaver
from infra.redis.client import connect

HISTORIES: Final = (10, 100, 500)
TEXT: Final = "x" * 200


class State(TypedDict):
    """A conversation."""

    messages: Annotated[list[AnyMessage], add_messages]


def chain(saver: Any, *, steps: int) -> Any:
    """A graph that adds one message in each of `steps` steps."""
    builder = StateGraph(State)
    for number in range(steps):

        def say(_: State, number: int = number) -> dict[str, Any]:
            return {"messages": [AIMessage(TEXT, id=f"new-{number}")]}

        builder.add_node(str(number), say)
        builder.add_edge(str(number - 1) if number else START, str(number))
    return builder.compile(checkpointer=saver)


@dataclass(frozen=True, slots=True)
class Step:
    """What one checkpointed step costs: CPU of this process, bytes sent to Redis, and bytes that stay there."""

    cpu_ms: float
    sent_bytes: float
    stored_bytes: float


async def cost_of_step(saver: Any, client: Redis, *, messages: int, steps: int, thread: str) -> Step:
    """The cost of one step on a thread that already has `messages` messages, as the mean of `steps`."""
    graph = chain(saver, steps=steps)
    config = {"configurable": {"thread_id": thread}}
    history = [HumanMessage(TEXT, id=f"old-{number}") for number in range(messages)]
    await graph.aupdate_state(config, {"messages": history}, as_node=str(steps - 1))
    before, started_s = await client.info(), time.process_time()
    await graph.ainvoke({"messages": [HumanMessage("go", id="go")]}, config, durability="sync")
    cpu_s, after = time.process_time() - started_s, await client.info()
    sent, stored = (after[name] - before[name] for name in ("total_net_input_bytes", "used_memory"))
    return Step(cpu_s * 1000 / steps, sent / steps, stored / steps)


async def measured(*, histories: Sequence[int], steps: int, rounds: int) -> dict[int, dict[str, Step]]:
    """The cheapest of `rounds` for each length and saver, in turns, so that a busy machine hurts all alike."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = await stack.enter_async_context(redis_server(data_dir=folder))
        client = connect(server.url, timeout_s=10.0)
        stack.push_async_callback(client.aclose)
        stock = AsyncRedisSaver(redis_client=client)
        await stock.asetup()
        savers = {"memory": InMemorySaver(), "stock": stock, "ours": HardenedRedisSaver(client)}
        costs: dict[int, dict[str, Step]] = {}
        for messages in histories:
            tries: dict[str, list[Step]] = {name: [] for name in savers}
            for number in range(rounds + 1):
                for name, saver in savers.items():
                    tries[name].append(
                        await cost_of_step(saver, client, messages=messages, steps=steps, thread=f"t-{messages}-{number}")
                    )
            # The first round warms up imports, connections and scripts.
            costs[messages] = {name: min(steps[1:], key=lambda step: step.cpu_ms) for name, steps in tries.items()}
        return costs


async def checkpoint_growth(full: bool) -> dict[str, Any]:  # noqa: FBT001 -- the shape of every section
    """A step's cost as a thread grows to 500 messages, the stock saver beside ours. Prints the table; returns flat figures."""
    costs = await measured(histories=HISTORIES, steps=10 if full else 5, rounds=3 if full else 1)
    rows = [
        (messages, *(cell for name in ("stock", "ours") for cell in _cells(cost[name])), cost["stock"].cpu_ms / cost["ours"].cpu_ms)
        for messages, cost in costs.items()
    ]
    columns = ("messages", "stock ms", "sent KB", "stored KB", "ours ms", "sent KB", "stored KB", "stock/ours CPU")
    print_table("One checkpointed step on a thread of so many messages: CPU, bytes sent, bytes stored", columns, rows)
    return {
        f"checkpoint_{name}_{figure}_{messages}": round(value, 2)
        for messages, cost in costs.items()
        for name in ("stock", "ours")
        for figure, value in zip(("cpu_ms", "sent_kb", "stored_kb"), _cells(cost[name]), strict=True)
    }


def _cells(step: Step) -> tuple[float, float, float]:
    return step.cpu_ms, step.sent_bytes / 1024, step.stored_bytes / 1024


async def main(*, steps: int, rounds: int) -> None:
    """Print the table with memory in it: what of a step's time is not the saver's."""
    costs = await measured(histories=HISTORIES, steps=steps, rounds=rounds)
    print("CPU ms per step\n messages   memory    stock     ours   ours/stock   ours/memory")
    for messages, cost in costs.items():
        memory, stock, ours = (cost[name].cpu_ms for name in ("memory", "stock", "ours"))
        print(f"{messages:9d}{memory:9.2f}{stock:9.2f}{ours:9.2f}{ours / stock:12.2f}{ours / memory:14.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    anyio.run(lambda: main(steps=options.steps, rounds=options.rounds))
