"""Case 30: every call of a model in a tree of runs carries the tenant of its own query, wherever in a node it is made."""

import ast
import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict

import anyio.to_thread
import pytest
from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.graph import END, START, StateGraph

ROOT = Path(__file__).parents[2]
LOSES_CONTEXT = {"run_in_executor", "submit", "ThreadPoolExecutor"}
EMBEDDED = ROOT / "infra" / "local"
QUERIES = 50


class Told(TypedDict, total=False):
    tenant: str
    said: str


class Tenants(AsyncCallbackHandler):
    """The tenant that each call of a model was made for, by tag and by metadata."""

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.heard: Counter[tuple[str | None, bool]] = Counter()

    async def on_chat_model_start(self, *_: Any, tags: list[str] | None = None, metadata: dict[str, Any] | None = None, **__: Any):
        self.heard[(metadata or {}).get("tenant"), self.tenant in (tags or [])] += 1


def chain() -> Any:
    return RunnableLambda(lambda text: text) | GenericFakeChatModel(messages=iter([AIMessage("yes")] * 10))


async def direct(_: Told) -> Told:
    await chain().ainvoke("?")
    return {"said": "yes"}


async def gathered(_: Told) -> Told:
    await asyncio.gather(*(chain().ainvoke("?") for _ in range(3)))
    return {"said": "yes"}


async def threaded(_: Told, config: RunnableConfig) -> Told:
    await anyio.to_thread.run_sync(lambda: chain().invoke("?"))
    await anyio.to_thread.run_sync(lambda: chain().invoke("?", config))
    return {"said": "yes"}


@pytest.mark.parametrize(("node", "calls"), [(direct, 1), (gathered, 3), (threaded, 2)])
async def test_case_30_fifty_queries_of_two_tenants_mix_none_and_miss_none(node, calls):
    graph = StateGraph(Told).add_node("node", node).add_edge(START, "node").add_edge("node", END).compile()
    listeners = [Tenants(f"tenant-{number % 2}") for number in range(QUERIES)]

    async def ask(one: Tenants) -> None:
        await graph.ainvoke({"tenant": one.tenant}, {"tags": [one.tenant], "metadata": {"tenant": one.tenant}, "callbacks": [one]})

    async with anyio.create_task_group() as group:
        for one in listeners:
            group.start_soon(ask, one)
    assert [one.heard for one in listeners] == [Counter({(one.tenant, True): calls}) for one in listeners]


def names_in(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name):
            yield node.id


def test_nothing_runs_where_the_configuration_of_its_run_would_be_lost():
    """The `to_thread` of anyio and asyncio copies the context; a loop's own executor does not."""
    files = [
        path for package in ("flows", "infra", "workers") for path in (ROOT / package).rglob("*.py") if EMBEDDED not in path.parents
    ]
    assert len(files) > 100
    assert {str(path.relative_to(ROOT)) for path in files if LOSES_CONTEXT & set(names_in(path))} == set()
