"""Retail tasks with known solutions: which calls are still to be made, and what is said at the end."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from infra.local.data.datasets import RetailAction, RetailTask
from infra.local.model_server.completions import ChatRequest, Message, Reply, ToolCall

PARALLEL_MARK: Final = "[parallel]"
_BLANKS: Final = re.compile(r"\s+")
_REFUSED: Final = re.compile(r"\b(reject\w*|declined?|denied|not approved|refused|expired|withdrawn)\b", re.IGNORECASE)


class TaskBook:
    """Known tasks by their instruction."""

    def __init__(self, tasks: Iterable[RetailTask]) -> None:
        self._by_instruction: dict[str, RetailTask] = {}
        for task in tasks:
            self._by_instruction.setdefault(_flat(task.instruction), task)

    def find(self, text: str) -> RetailTask | None:
        """The task whose instruction the text is, or contains."""
        flat = _flat(text)
        exact = self._by_instruction.get(flat)
        if exact or len(flat) < min(map(len, self._by_instruction), default=0):
            return exact
        return next((task for instruction, task in self._by_instruction.items() if instruction in flat), None)


def play(task: RetailTask, request: ChatRequest, *, parallel: bool) -> Reply:
    """The next call of the solution, whatever the tools answered; after the last one, a closing message.

    Actions whose tool is not offered are passed over, and arguments that a tool does not declare are left out. With
    `parallel`, the reads come first, one by one, then all changes at once.
    """
    actions = _in_order(task.actions, parallel=parallel)
    made = [name for message in request.since_asked for name in message.calls]
    left = [action for action in actions[_position(actions, made) :] if action.name in request.tools]
    if not left:
        return Reply(text=_closing(task, request.since_asked))
    turn = left if parallel and left[0].mutates else left[:1]
    return Reply(tool_calls=tuple(ToolCall(a.name, _declared(a.arguments, request.tools[a.name])) for a in turn))


def _in_order(actions: Sequence[RetailAction], *, parallel: bool) -> list[RetailAction]:
    return sorted(actions, key=lambda action: action.mutates) if parallel else list(actions)


def _position(actions: Sequence[RetailAction], made: Iterable[str]) -> int:
    """How far the calls that were made lead into the solution; by name, since people edit arguments."""
    position = 0
    for name in made:
        ahead = next((index for index in range(position, len(actions)) if actions[index].name == name), None)
        position = position if ahead is None else ahead + 1
    return position


def _declared(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties")
    return {name: value for name, value in arguments.items() if properties is None or name in properties}


def _closing(task: RetailTask, since_asked: Sequence[Message]) -> str:
    changes = {action.name for action in task.actions if action.mutates}
    names = {call_id: name for m in since_asked for call_id, name in zip(m.call_ids, m.calls, strict=True)}
    results = [(names.get(m.answers or "", ""), m.text) for m in since_asked if m.role == "tool"]
    ordered = [text for name, text in results if name in changes]
    refused = sum(bool(_REFUSED.search(text)) for text in ordered)
    said = "I looked into it; nothing had to be changed." if not ordered else f"I worked through {len(ordered)} change(s) for you."
    if refused:
        said += f" {refused} of them were not approved and left as they are."
    if task.outputs:
        said += f" What you asked for: {', '.join(task.outputs)}."
    return said


def _flat(text: str) -> str:
    return _BLANKS.sub(" ", text).strip()
