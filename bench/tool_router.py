"""What the tool router saves and what it costs: forty tools, and the calls that the retail tasks are solved by.

Each call of each known solution is one turn: the conversation up to it, with the shop's real answers, goes to the router, and it
counts whether the tool that comes next is among those that the model would be shown.

Run: uv run python -m bench.tool_router
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from bench.forty_tools import FORTY
from flows import prompts
from flows.agent import router, search
from flows.agent.tools import Tool
from infra.local.back_office.retail import OPERATIONS
from infra.local.back_office.tables import RefusedError, Tables
from infra.local.data import datasets
from infra.local.data.datasets import RetailTask

TOOLS: Final = (search.TOOL, *FORTY.tools)
# What it costs to name the tools that are not shown, at its most.
OTHERS_TOKENS: Final = len(prompts.OTHER_TOOLS.format(names=", ".join(tool.name for tool in TOOLS))) // 4


@dataclass(frozen=True, slots=True)
class Turn:
    """A conversation, and the tool that the known solution calls next."""

    messages: tuple[AnyMessage, ...]
    needed: str


def turns_of(task: RetailTask, seed: Any) -> Iterator[Turn]:
    """The turns of a task's known solution, with the answers that the shop gives."""
    changed: dict[Any, Any] = {}
    messages: list[AnyMessage] = [HumanMessage(task.instruction)]
    for number, action in enumerate(task.actions):
        yield Turn(tuple(messages), action.name)
        tables = Tables(seed, changed)
        try:
            text = OPERATIONS[action.name].run(tables, action.arguments)
            changed |= tables.pending
        except RefusedError as refused:
            text = str(refused)
        call = {"type": "tool_call", "id": str(number), "name": action.name, "args": dict(action.arguments)}
        messages += [AIMessage("", tool_calls=[call]), ToolMessage(text, tool_call_id=str(number), name=action.name)]


def schema_tokens(tools: Sequence[Tool]) -> int:
    """What the schemas of these tools cost in a prompt, at four characters a token."""
    return sum(len(json.dumps(tool.schema())) for tool in tools) // 4


def measure() -> dict[str, Any]:
    """Route every turn of every task. Returns flat figures.

    `tool_hits` counts turns whose next tool is shown; the others need its name, which the prompt tells.
    """
    seed = datasets.retail_seed()
    turns = [turn for task in datasets.retail_tasks() for turn in turns_of(task, seed)]
    shown = [router.shown_tools(TOOLS, turn.messages, pinned=FORTY.pinned) for turn in turns]
    hits = [turn.needed in {tool.name for tool in tools} for turn, tools in zip(turns, shown, strict=True)]
    shown_tokens = sum(map(schema_tokens, shown)) / len(shown) + OTHERS_TOKENS
    return {
        "tool_turns": len(turns),
        "tool_hits": round(sum(hits) / len(hits), 3),
        "tools_all": len(TOOLS),
        "tools_shown_max": max(map(len, shown)),
        "tool_tokens_all": schema_tokens(TOOLS),
        "tool_tokens_shown": round(shown_tokens),
        "tool_tokens_saved": round(1 - shown_tokens / schema_tokens(TOOLS), 3),
    }


if __name__ == "__main__":
    print(json.dumps(measure()))
