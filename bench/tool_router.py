"""What the tool router saves and what it costs: forty tools, and the calls that the retail tasks are solved by.

Each call of each known solution is one turn: the conversation up to it, with the shop's real answers, goes to the router, and it
counts whether the tool that comes next is among those that the model would be shown. The router's weights are chosen on one half
of the tasks, which a hash of their ids draws; the figures are of the other half.

Run: uv run python -m bench.tool_router [choose]
"""

import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from bench.forty_tools import FORTY
from bench.rig import print_table
from flows import prompts
from flows.agent import router, search
from flows.agent.router import WEIGHTS, Weights
from flows.agent.tools import Tool
from infra.local.back_office.retail import OPERATIONS
from infra.local.back_office.tables import RefusedError, Tables
from infra.local.data import datasets
from infra.local.data.datasets import RetailTask

TOOLS: Final = (search.TOOL, *FORTY.tools)
# What it costs to name the tools that are not shown, at its most.
OTHERS_TOKENS: Final = len(prompts.OTHER_TOOLS.format(names=", ".join(tool.name for tool in TOOLS))) // 4
GRID: Final = [Weights(*one) for one in product((1.0, 2.0, 3.0), (0.1, 0.3, 0.5, 1.0), (0.0, 0.25, 0.5, 1.0), (2, 3, 4))]
BEST_SHOWN: Final = 10


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


def turns_of_half(*, tunes: bool) -> list[Turn]:
    """The turns of the tasks that weights are chosen on, or of the others."""
    seed = datasets.retail_seed()
    return [turn for task in datasets.retail_tasks() if _tunes(task) is tunes for turn in turns_of(task, seed)]


def _tunes(task: RetailTask) -> bool:
    return hashlib.sha256(task.task_id.encode()).digest()[7] % 2 == 0


def schema_tokens(tools: Sequence[Tool]) -> int:
    """What the schemas of these tools cost in a prompt, at four characters a token."""
    return sum(len(json.dumps(tool.schema())) for tool in tools) // 4


def shown_in(turns: Sequence[Turn], weights: Weights = WEIGHTS) -> list[tuple[Tool, ...]]:
    """What each turn's model would be shown."""
    return [router.shown_tools(TOOLS, turn.messages, pinned=FORTY.pinned, weights=weights) for turn in turns]


def hits(turns: Sequence[Turn], shown: Sequence[Sequence[Tool]]) -> float:
    """The share of turns whose next tool is shown; the others need its name, which the prompt tells."""
    return sum(turn.needed in {tool.name for tool in tools} for turn, tools in zip(turns, shown, strict=True)) / len(turns)


def measure() -> dict[str, Any]:
    """Route every turn with the weights that ship. Returns flat figures, of the half that they were not chosen on."""
    turns, tuning = turns_of_half(tunes=False), turns_of_half(tunes=True)
    shown = shown_in(turns)
    shown_tokens = sum(map(schema_tokens, shown)) / len(shown) + OTHERS_TOKENS
    return {
        "tool_turns": len(turns),
        "tool_hits": round(hits(turns, shown), 3),
        "tool_hits_tuning_half": round(hits(tuning, shown_in(tuning)), 3),
        "tools_all": len(TOOLS),
        "tools_shown_max": max(map(len, shown)),
        "tool_tokens_all": schema_tokens(TOOLS),
        "tool_tokens_shown": round(shown_tokens),
        "tool_tokens_saved": round(1 - shown_tokens / schema_tokens(TOOLS), 3),
    }


def choose() -> list[tuple[Weights, float]]:
    """Every choice of weights with its hits on the half for tuning, the best first; takes about a minute."""
    turns = turns_of_half(tunes=True)
    found = [(weights, hits(turns, shown_in(turns, weights))) for weights in GRID]
    return sorted(found, key=lambda one: (-one[1], one[0] != WEIGHTS))


def main() -> None:
    """Print the figures, or how the weights were chosen."""
    if "choose" in sys.argv[1:]:
        rows = [(*weights, f"{share:.1%}", "ships" if weights == WEIGHTS else "") for weights, share in choose()[:BEST_SHOWN]]
        print_table("The router's weights, on the half for tuning", (*Weights._fields, "needed tool shown", ""), rows)
    else:
        print(json.dumps(measure()))


if __name__ == "__main__":
    main()
