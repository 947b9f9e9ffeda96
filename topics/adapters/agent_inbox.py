"""Agent Inbox: a list of one HumanInterrupt asks, a list of one HumanResponse answers.

accept is approve, ignore is reject (its `args`, null in the inbox itself, may be the reason), response is respond.
Source: langchain-ai/agent-inbox, README and types.ts
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from topics.adapters.actions import Action, action_of, decided, edited, malformed, without_message
from topics.adapters.typed import typed_again
from topics.events import ApprovalDecided, ApprovalRequested, Decision

SWITCHES: Final[dict[Decision, str]] = {
    "approve": "allow_accept",
    "edit": "allow_edit",
    "reject": "allow_ignore",
    "respond": "allow_respond",
}


def to_interrupt(request: ApprovalRequested) -> list[dict[str, Any]]:
    """The interrupt value that shows a request."""
    action = action_of(request)
    return [
        {
            "action_request": {"action": action.tool, "args": action.arguments},
            "config": {switch: decision in action.allowed for decision, switch in SWITCHES.items()},
            "description": action.reason,
        }
    ]


def from_interrupt(value: Any) -> Action:
    """The call that an interrupt value shows, alone or as a list of one.

    Raises:
        MalformedError: It is no HumanInterrupt.
    """
    shown = _the_one(value)
    request, config = _mapping(shown.get("action_request")), _mapping(shown.get("config"))
    if not isinstance(request.get("action"), str):
        raise malformed("action_request has no action")
    allowed: tuple[Decision, ...] = tuple(decision for decision, switch in SWITCHES.items() if config.get(switch) is True)
    return Action(request["action"], dict(_mapping(request.get("args"))), allowed, shown.get("description") or "")


def to_response(said: ApprovalDecided, request: ApprovalRequested) -> list[dict[str, Any]]:
    """What the inbox would send for a decision.

    Raises:
        InexpressibleError: An approval or an edit has a message.
    """
    match said.decision:
        case "approve":
            without_message(said)
            return [{"type": "accept", "args": None}]
        case "edit":
            without_message(said)
            tool, arguments = edited(said, request)
            return [{"type": "edit", "args": {"action": tool, "args": arguments}}]
        case "reject":
            return [{"type": "ignore", "args": said.message}]
        case "respond":
            return [{"type": "response", "args": said.message or ""}]


def from_response(
    value: Any, request: ApprovalRequested, *, approver: str, schema: Mapping[str, Any] | None = None
) -> ApprovalDecided:
    """The decision that a response is. Edited values, which a form gives back as strings, get their types again.

    Args:
        schema: JSON Schema of the tool's arguments, where it is known.
    Raises:
        MalformedError: It is no HumanResponse, or it accepts another call than the one that waits.
    """
    said = _the_one(value)
    args: Any = said.get("args")
    match said.get("type"):
        case "accept":
            _check_accepted(args, request, schema)
            return decided(request, "approve", approver=approver)
        case "edit":
            tool, arguments = _call(args)
            typed = typed_again(arguments, original=request.arguments, schema=schema)
            return decided(request, "edit", approver=approver, tool=tool, arguments=typed)
        case "ignore" if args is None or isinstance(args, str):
            return decided(request, "reject", approver=approver, message=args)
        case "response" if isinstance(args, str):
            return decided(request, "respond", approver=approver, message=args)
        case _:
            raise malformed("no HumanResponse")


def _check_accepted(args: Any, request: ApprovalRequested, schema: Mapping[str, Any] | None) -> None:
    """The inbox sends along what it showed. It must be what waits."""
    if args is None:
        return
    tool, arguments = _call(args)
    if (tool, typed_again(arguments, original=request.arguments, schema=schema)) != (request.tool, request.arguments):
        raise malformed("it accepts another call than the one that waits")


def _call(args: Any) -> tuple[str, Mapping[str, Any]]:
    call = _mapping(args)
    if not isinstance(call.get("action"), str):
        raise malformed("no action in it")
    return call["action"], _mapping(call.get("args"))


def _the_one(value: Any) -> Mapping[str, Any]:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        several = cast("Sequence[Any]", value)
        if len(several) != 1:
            raise malformed("a list of exactly one is wanted")
        return _mapping(several[0])
    return _mapping(value)


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise malformed("an object is wanted")
    return cast("Mapping[str, Any]", value)
