"""What both sides of an adapter mean: a call that waits, and what a person said about it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from topics.errors import MalformedError
from topics.events import ApprovalDecided, ApprovalRequested, Decision

EVERY_DECISION: Final[tuple[Decision, ...]] = ("approve", "edit", "reject", "respond")


class InexpressibleError(ValueError):
    """The other shape has no place for something that is said. Nothing was converted."""


@dataclass(frozen=True, slots=True)
class Action:
    """A call as it is shown to a person. Decisions in the order of `EVERY_DECISION`."""

    tool: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    allowed: tuple[Decision, ...] = ()
    reason: str = ""


def action_of(request: ApprovalRequested) -> Action:
    """What of a request every shape can show."""
    allowed: tuple[Decision, ...] = tuple(one for one in EVERY_DECISION if one in request.allowed_decisions)
    return Action(request.tool, request.arguments, allowed, request.reason)


def decided(
    request: ApprovalRequested,
    decision: Decision,
    *,
    approver: str,
    tool: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    message: str | None = None,
) -> ApprovalDecided:
    """A decision on a request. One that is not allowed is made nevertheless: its sender is told so by the worker."""
    return ApprovalDecided(
        approval_id=request.approval_id,
        thread_id=request.thread_id,
        decision=decision,
        args_digest=request.args_digest,
        approver=approver,
        tool=tool,
        arguments=None if arguments is None else dict(arguments),
        message=message,
    )


def edited(said: ApprovalDecided, request: ApprovalRequested) -> tuple[str, dict[str, Any]]:
    """Tool and arguments of an edit."""
    return said.tool or request.tool, said.arguments or {}


def without_message(said: ApprovalDecided) -> None:
    """Refuse a message where the other shape has no place for one.

    Raises:
        InexpressibleError: There is one.
    """
    if said.message is not None:
        raise InexpressibleError(f"{said.decision} with a message")


def malformed(what: str) -> MalformedError:
    """The other side's value is not of its own shape."""
    return MalformedError(what, code="bad_response")
