"""What an agent did about a task, as its thread and its events say."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

from flows.agent import search
from flows.evaluation.tasks import Call, Change, Station

ESCALATING: Final = frozenset({"transfer_to_human_agents"})
"""Tools that hand the customer over to a person."""


@dataclass(frozen=True, slots=True)
class Observation:
    """`changes` is None where nobody can tell what changed. `ending` is the outcome of the last query.

    `asked` counts requests to people, and `errors` the calls that a tool or a person refused.
    """

    calls: tuple[Call, ...]
    text: str
    ending: Station
    asked: int
    errors: int = 0
    changes: tuple[Change, ...] | None = None

    @property
    def route(self) -> tuple[Station, ...]:
        """The stations that the task came by."""
        tools = {call.tool for call in self.calls}
        passed: list[Station] = []
        if search.TOOL.name in tools:
            passed.append("searched")
        if self.asked:
            passed.append("asked")
        if tools & ESCALATING:
            passed.append("escalated")
        return (*passed, self.ending)


def calls_of(messages: Sequence[AnyMessage]) -> tuple[Call, ...]:
    """Every tool call that a model made in a conversation, in order, unreadable ones included."""
    return tuple(call for message in messages if isinstance(message, AIMessage) for call in _calls(message))


def _calls(message: AIMessage) -> Iterable[Call]:
    for call in message.tool_calls:
        yield Call(tool=call["name"], arguments=call["args"])
    for broken in message.invalid_tool_calls:
        yield Call(tool=broken["name"] or "", arguments={"": broken["args"] or ""})


def errors_of(messages: Sequence[AnyMessage]) -> int:
    """How many calls were refused or failed."""
    return sum(isinstance(message, ToolMessage) and message.status == "error" for message in messages)


def changes_of(records: Iterable[dict[str, Any]]) -> tuple[Change, ...]:
    """Records as a back office lists them."""
    return tuple(Change(table=one["table"], key=one["key"], after=one["after"]) for one in records)
