"""Tool calls that wait for people, what people said, and what came of it."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from topics.events.payload import Instant, Payload

Decision = Literal["approve", "edit", "reject", "respond"]
RefusalCode = Literal[
    "duplicate", "late", "stale", "expired", "unknown", "mismatch", "forbidden", "invalid_edit", "graph_version", "thread_gone"
]


class PastDecision(BaseModel):
    """A decision that was already taken on the same action in this thread."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    approval_id: str
    decision: Decision
    arguments: dict[str, Any]
    approver: str | None = None


class ApprovalRequested(Payload):
    """A tool call that waits for a person, to the byte."""

    TYPE = "approval.requested"

    approval_id: str
    thread_id: str
    query_id: str
    interrupt_id: str
    tool: str
    tool_class: Literal["READ", "WRITE", "IRREVERSIBLE"]
    arguments: dict[str, Any]
    args_digest: str
    policy_version: str
    graph_version: str
    allowed_decisions: tuple[Decision, ...]
    approvers: tuple[str, ...] = ()
    requester: str | None = None
    reason: str = ""
    expires_at: Instant | None = None
    history: tuple[PastDecision, ...] = ()

    def identity(self) -> str:
        return self.approval_id


class ApprovalWithdrawn(Payload):
    """The action is no longer wanted; a decision now is `stale`."""

    TYPE = "approval.withdrawn"

    approval_id: str
    thread_id: str
    reason: str

    def identity(self) -> str:
        return self.approval_id


class ApprovalReminded(Payload):
    """The request still waits."""

    TYPE = "approval.reminded"

    approval_id: str
    thread_id: str
    reminder: int

    def identity(self) -> str:
        return f"{self.approval_id}:{self.reminder}"


class ApprovalDecided(Payload):
    """What a person decided. It must echo the digest of what was shown."""

    TYPE = "approval.decided"

    approval_id: str = Field(min_length=1, max_length=200)
    thread_id: str = Field(min_length=1, max_length=200)
    decision: Decision
    args_digest: str
    approver: str = Field(min_length=1)
    tool: str | None = None
    arguments: dict[str, Any] | None = None
    message: str | None = None
    signature: str | None = None


class Verdict(BaseModel):
    """The decision that won."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    decision_id: str
    decision: Decision
    approver: str
    arguments: dict[str, Any] | None = None
    message: str | None = None


class ApprovalAccepted(Payload):
    """This decision won."""

    TYPE = "approval.accepted"

    approval_id: str
    thread_id: str
    decision_id: str
    decision: Decision
    approver: str

    def identity(self) -> str:
        return self.approval_id


class ApprovalRefused(Payload):
    """This decision did not count, and why; `winner` is the one that did."""

    TYPE = "approval.refused"

    approval_id: str
    thread_id: str
    decision_id: str
    code: RefusalCode
    detail: str = ""
    winner: Verdict | None = None

    def identity(self) -> str:
        return self.decision_id


class ApprovalExpired(Payload):
    """Nobody decided in time."""

    TYPE = "approval.expired"

    approval_id: str
    thread_id: str

    def identity(self) -> str:
        return self.approval_id


class ApprovalExecuted(Payload):
    """What ran, with which arguments, and what came of it."""

    TYPE = "approval.executed"

    approval_id: str
    thread_id: str
    tool: str
    arguments: dict[str, Any]
    args_digest: str
    status: Literal["ok", "error", "in_doubt", "not_run"]
    result: str

    def identity(self) -> str:
        return self.approval_id
