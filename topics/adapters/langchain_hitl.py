"""LangChain's human-in-the-loop middleware: several calls in one HITLRequest, or one at a time (`per_call`).

Answers in a batch belong to calls by position. One at a time is safer: of a batch, one answer may already have acted when
another is refused.
Source: langchain 1.5, langchain.agents.middleware.human_in_the_loop
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from topics.adapters.actions import Action, action_of, decided, edited, malformed, without_message
from topics.events import ApprovalDecided, ApprovalRequested, Decision


def to_request(requests: Sequence[ApprovalRequested]) -> dict[str, Any]:
    """One HITLRequest for several calls, each with a review config of its own at the same place."""
    actions = [action_of(request) for request in requests]
    return {
        "action_requests": [_shown(action) for action in actions],
        "review_configs": [{"action_name": one.tool, "allowed_decisions": list(one.allowed)} for one in actions],
    }


def from_request(value: Any) -> list[Action]:
    """The calls in a HITLRequest. A config belongs to the call at its place, or where there are fewer, to its tool's calls.

    Raises:
        MalformedError: It is no HITLRequest, or a call has no config.
    """
    request = _mapping(value)
    shown, configs = _list(request.get("action_requests")), _list(request.get("review_configs"))
    return [_action(one, _config_of(one, place, configs)) for place, one in enumerate(shown)]


def to_response(said: Sequence[ApprovalDecided], requests: Sequence[ApprovalRequested]) -> dict[str, Any]:
    """One HITLResponse for as many calls.

    Raises:
        InexpressibleError: An approval or an edit has a message.
    """
    return {"decisions": [to_decision(one, request) for one, request in zip(said, requests, strict=True)]}


def from_response(value: Any, requests: Sequence[ApprovalRequested], *, approver: str) -> list[ApprovalDecided]:
    """The decisions in a HITLResponse, by position.

    Raises:
        MalformedError: It is no HITLResponse, or there are more or fewer answers than calls.
    """
    answers = _list(_mapping(value).get("decisions"))
    if len(answers) != len(requests):
        raise malformed(f"{len(answers)} decisions on {len(requests)} calls")
    return [from_decision(one, request, approver=approver) for one, request in zip(answers, requests, strict=True)]


def to_tool_approval(request: ApprovalRequested, *, tool_call_id: str | None = None) -> dict[str, Any]:
    """The interrupt value of one call in `per_call` mode; the approval's id stands for a call id that is not known.

    It has no place for the decisions that are allowed: there they are in the interrupt's `response_schema`.
    """
    return {
        "type": "tool_approval",
        "tool_call_id": tool_call_id or request.approval_id,
        "name": request.tool,
        "args": request.arguments,
        "description": request.reason,
    }


def from_tool_approval(value: Any, *, allowed: Sequence[Decision]) -> Action:
    """The call that a `per_call` interrupt shows.

    Raises:
        MalformedError: It is no ToolApprovalRequest.
    """
    shown = _mapping(value)
    if shown.get("type") != "tool_approval":
        raise malformed("no tool_approval")
    return _action(shown, {"allowed_decisions": list(allowed)})


def to_decision(said: ApprovalDecided, request: ApprovalRequested) -> dict[str, Any]:
    """One decision.

    Raises:
        InexpressibleError: An approval or an edit has a message.
    """
    match said.decision:
        case "approve":
            without_message(said)
            return {"type": "approve"}
        case "edit":
            without_message(said)
            tool, arguments = edited(said, request)
            return {"type": "edit", "edited_action": {"name": tool, "args": arguments}}
        case "reject":
            return {"type": "reject"} | ({} if said.message is None else {"message": said.message})
        case "respond":
            return {"type": "respond", "message": said.message or ""}


def from_decision(value: Any, request: ApprovalRequested, *, approver: str) -> ApprovalDecided:
    """One decision. An edit that names another tool says so: the worker refuses it.

    Raises:
        MalformedError: It is no decision.
    """
    said = _mapping(value)
    message: Any = said.get("message")
    match said.get("type"):
        case "approve":
            return decided(request, "approve", approver=approver)
        case "edit":
            action = _mapping(said.get("edited_action"))
            if not isinstance(action.get("name"), str):
                raise malformed("the edited action has no name")
            arguments = _mapping(action.get("args"))
            return decided(request, "edit", approver=approver, tool=action["name"], arguments=arguments)
        case "reject" if message is None or isinstance(message, str):
            return decided(request, "reject", approver=approver, message=message)
        case "respond" if isinstance(message, str):
            return decided(request, "respond", approver=approver, message=message)
        case _:
            raise malformed("no decision")


def _shown(action: Action) -> dict[str, Any]:
    shown = {"name": action.tool, "args": action.arguments}
    return shown | ({"description": action.reason} if action.reason else {})


def _action(value: Any, config: Mapping[str, Any]) -> Action:
    shown = _mapping(value)
    if not isinstance(shown.get("name"), str):
        raise malformed("an action has no name")
    allowed = tuple(cast("list[Decision]", _list(config.get("allowed_decisions"))))
    return Action(shown["name"], dict(_mapping(shown.get("args"))), allowed, shown.get("description") or "")


def _config_of(shown: Any, place: int, configs: Sequence[Any]) -> Mapping[str, Any]:
    name = _mapping(shown).get("name")
    candidates = [*configs[place : place + 1], *configs]
    for config in map(_mapping, candidates):
        if config.get("action_name") == name:
            return config
    raise malformed("an action has no review config")


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise malformed("a list is wanted")
    return cast("list[Any]", value)


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise malformed("an object is wanted")
    return cast("Mapping[str, Any]", value)
