"""What a checkpointed step costs in Python: ours, the stock Redis saver, and memory, side by side in one process.

Run: uv run python -m bench.checkpointer [--steps 10] [--rounds 3]
"""

import argparse
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any, Final, TypedDict

import anyio
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.redis.aio import AsyncRedisSaver
from langgraph.graph import START, StateGraph, add_messages

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


async def cpu_ms_per_step(saver: Any, *, messages: int, steps: int, thread: str) -> float:
    """CPU milliseconds of this process for one step on a thread that already has `messages` messages."""
    graph = chain(saver, steps=steps)
    config = {"configurable": {"thread_id": thread}}
    history = [HumanMessage(TEXT, id=f"old-{number}") for number in range(messages)]
    await graph.aupdate_state(config, {"messages": history}, as_node=str(steps - 1))
    started_s = time.process_time()
    await graph.ainvoke({"messages": [HumanMessage("go", id="go")]}, config, durability="sync")
    return (time.process_time() - started_s) * 1000 / steps


async def main(*, steps: int, rounds: int) -> None:
    """Print the table: the best of `rounds` for each saver, in turns, so that a busy machine hurts all alike."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = await stack.enter_async_context(redis_server(data_dir=folder))
        client = connect(server.url, timeout_s=10.0)
        stack.push_async_callback(client.aclose)
        stock = AsyncRedisSaver(redis_client=client)
        await stock.asetup()
        savers = {"memory": InMemorySaver(), "stock": stock, "ours": HardenedRedisSaver(client)}
        print("CPU ms per step\n messages   memory    stock     ours   ours/stock   ours/memory")
        for messages in HISTORIES:
            best = dict.fromkeys(savers, float("inf"))
            for number in range(rounds + 1):
                for name, saver in savers.items():
                    spent = await cpu_ms_per_step(saver, messages=messages, steps=steps, thread=f"t-{messages}-{number}")
                    # The first round warms up imports, connections and scripts.
                    best[name] = min(best[name], spent) if number else best[name]
            row = "".join(f"{best[name]:9.2f}" for name in savers)
            print(f"{messages:9d}{row}{best['ours'] / best['stock']:12.2f}{best['ours'] / best['memory']:14.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    anyio.run(lambda: main(steps=options.steps, rounds=options.rounds))
