"""Tool calls that wait for people, what people said, and what came of it."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from topics.events.payload import Instant, Payload

Decision = Literal["approve", "edit", "reject", "respond"]
AtExpiry = Literal["reject", "cancel"]
OnNewMessage = Literal["hold", "cancel", "revise"]
Standing = Literal["won", "counted", "proposed"]
TimerStep = Literal["remind", "escalate", "expire"]
RefusalCode = Literal[
    "duplicate",
    "late",
    "stale",
    "expired",
    "unknown",
    "mismatch",
    "forbidden",
    "invalid_edit",
    "graph_version",
    "thread_gone",
    "bad_checkpoint",
]


class PastDecision(BaseModel):
    """A decision that was already taken on the same action in this thread."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    approval_id: str
    decision: Decision
    arguments: dict[str, Any]
    approver: str | None = None


class Escalation(BaseModel):
    """Who may decide too, from `after_s` seconds after the request on."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    after_s: int
    people: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()


class Terms(BaseModel):
    """Who must say yes, how many, until when, and what happens at the end of the time.

    No people and no roles named means anybody whom the tenant's keys know. Time can say no and never yes.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    people: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    quorum: int = 1
    requester_excluded: bool = True
    remind_every_s: int | None = None
    escalations: tuple[Escalation, ...] = ()
    expires_after_s: int | None = None
    at_expiry: AtExpiry = "reject"
    on_new_message: OnNewMessage = "hold"


class ChainLink(BaseModel):
    """The place of an outcome in its tenant's chain, and when it got it. `digest` covers all of it; see `topics/chain.py`."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    number: int
    previous: str
    digest: str
    at: Instant | None = None


class ApprovalRequested(Payload):
    """A tool call that waits for a person, to the byte; or one whose effect is in doubt, for which see `kind`.

    In doubt, `approve` runs it again, `respond` tells what came of it, and `reject` gives up.
    """

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
    prompt_version: str = ""
    allowed_decisions: tuple[Decision, ...]
    kind: Literal["call", "in_doubt"] = "call"
    terms: Terms = Terms()
    amount: int | None = None
    requester: str | None = None
    reason: str = ""
    requested_at: Instant | None = None
    expires_at: Instant | None = None
    supersedes: str | None = None
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


class ApprovalAmended(Payload):
    """An edit that needs others to agree: to approve it, echo this digest."""

    TYPE = "approval.amended"

    approval_id: str
    thread_id: str
    arguments: dict[str, Any]
    args_digest: str
    terms: Terms
    proposed_by: str

    def identity(self) -> str:
        return f"{self.approval_id}:{self.args_digest}"


class ApprovalEscalated(Payload):
    """The request still waits; from now on these may decide too."""

    TYPE = "approval.escalated"

    approval_id: str
    thread_id: str
    level: int
    people: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()

    def identity(self) -> str:
        return f"{self.approval_id}:{self.level}"


class ApprovalReminded(Payload):
    """The request still waits."""

    TYPE = "approval.reminded"

    approval_id: str
    thread_id: str
    reminder: int

    def identity(self) -> str:
        return f"{self.approval_id}:{self.reminder}"


class ApprovalDue(Payload):
    """A moment of an approval has come: to be reminded, escalated or expired. One event for each, however often it is sent."""

    TYPE = "approval.due"

    approval_id: str
    thread_id: str
    step: TimerStep
    number: int = 1

    def identity(self) -> str:
        return f"{self.approval_id}:{self.step}:{self.number}"


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
    """This decision counts: it won, it is one of `votes` out of `needed`, or it proposes an edit that others must approve."""

    TYPE = "approval.accepted"

    approval_id: str
    thread_id: str
    decision_id: str
    decision: Decision
    approver: str
    standing: Standing = "won"
    votes: int = 1
    needed: int = 1
    args_digest: str = ""
    arguments: dict[str, Any] | None = None
    message: str | None = None
    key_id: str | None = None
    token_id: str | None = None
    roles: tuple[str, ...] = ()
    chain: ChainLink | None = None

    def identity(self) -> str:
        return self.decision_id


class ApprovalRefused(Payload):
    """This decision did not count, and why; `reason` is a stable word within `code`, and `winner` is the one that did."""

    TYPE = "approval.refused"

    approval_id: str
    thread_id: str
    decision_id: str
    code: RefusalCode
    reason: str = ""
    detail: str = ""
    winner: Verdict | None = None
    chain: ChainLink | None = None

    def identity(self) -> str:
        return self.decision_id


class ApprovalExpired(Payload):
    """Nobody decided in time."""

    TYPE = "approval.expired"

    approval_id: str
    thread_id: str
    at_expiry: AtExpiry = "reject"
    chain: ChainLink | None = None

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
    chain: ChainLink | None = None

    def identity(self) -> str:
        return self.approval_id
