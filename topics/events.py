"""Every payload, in the past tense. `TYPE` and `VERSION` name it on the wire; unknown extra fields are ignored.

`identity()` gives an event an id of its own, whoever publishes it and however often; without one the id comes from the
causing event and the ordinal of the yield.
"""

from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from topics.attributes import instant

Decision = Literal["approve", "edit", "reject", "respond"]
RefusalCode = Literal[
    "duplicate", "late", "stale", "expired", "unknown", "mismatch", "forbidden", "invalid_edit", "graph_version", "thread_gone"
]


def _instant(value: Any) -> Any:
    """Read instants by the one rule; guess nothing from numbers."""
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else instant(value)


Instant = Annotated[AwareDatetime, BeforeValidator(_instant)]


class Payload(BaseModel):
    """Base of every payload."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    TYPE: ClassVar[str]
    VERSION: ClassVar[int] = 1
    # A piece of a stream: whoever yields it goes on before the broker has it, since a later event says it all again.
    STREAMED: ClassVar[bool] = False

    def identity(self) -> str | None:
        """What makes two publications the same fact, or None when only their cause does."""
        return None


# Tickets


class TicketOpened(Payload):
    """A customer opened a ticket."""

    TYPE = "ticket.opened"

    ticket_id: str = Field(min_length=1, max_length=200)
    title: str = ""
    body: str
    requester: str | None = None
    opened_at: Instant | None = None


class TicketCommented(Payload):
    """Somebody wrote on a ticket."""

    TYPE = "ticket.commented"

    ticket_id: str = Field(min_length=1, max_length=200)
    body: str
    author: str | None = None


class TicketClosed(Payload):
    """A ticket was closed upstream."""

    TYPE = "ticket.closed"

    ticket_id: str = Field(min_length=1, max_length=200)
    reason: str | None = None


class TicketErased(Payload):
    """What a tombstone on `tickets` means: forget everything about the ticket."""

    TYPE = "ticket.erased"

    ticket_id: str = Field(min_length=1, max_length=200)


class TicketTriaged(Payload):
    """What triage found."""

    TYPE = "ticket.triaged"

    ticket_id: str
    intent: str
    priority: Literal["low", "normal", "high", "urgent"]
    needs_person: bool
    summary: str
    model: str | None = None


# Articles


class ArticlePublished(Payload):
    """A help article, whole; a later one with the same id replaces it."""

    TYPE = "article.published"

    article_id: str = Field(min_length=1, max_length=200)
    title: str
    body: str
    url: str | None = None
    revision: int = Field(default=1, ge=0)


class ArticleRetired(Payload):
    """What a tombstone on `articles` means: remove it from the index."""

    TYPE = "article.retired"

    article_id: str = Field(min_length=1, max_length=200)


# Queries and answers


class QueryAsked(Payload):
    """A question or an order for the agent. The event id is the query id."""

    TYPE = "query.asked"

    thread_id: str = Field(min_length=1, max_length=200)
    text: str = Field(min_length=1)
    user_id: str | None = None


class QueryCancelled(Payload):
    """The asker no longer wants an answer."""

    TYPE = "query.cancelled"

    thread_id: str = Field(min_length=1, max_length=200)
    query_id: str | None = None


class FeedbackGiven(Payload):
    """A thumb and a note on an answer."""

    TYPE = "feedback.given"

    thread_id: str = Field(min_length=1, max_length=200)
    query_id: str | None = None
    thumb: Literal["up", "down"] | None = None
    note: str | None = None


class Citation(BaseModel):
    """A passage that the answer rests on, carried from the index and never written by a model."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    marker: int
    article_id: str
    title: str
    url: str | None = None
    revision: int = 1
    passage: str


class AnswerDelta(Payload):
    """A piece of text. Pieces of the highest attempt, joined by sequence, are the answer."""

    TYPE = "answer.delta"
    STREAMED = True

    thread_id: str
    query_id: str
    attempt: int
    sequence: int
    text: str

    def identity(self) -> str:
        return f"{self.query_id}:{self.attempt}:{self.sequence}"


class AnswerRestarted(Payload):
    """Everything streamed for this query before is void; `attempt` is the one that counts now."""

    TYPE = "answer.restarted"

    thread_id: str
    query_id: str
    attempt: int
    reason: Literal["retry", "tool_call", "resumed"]

    def identity(self) -> str:
        return f"{self.query_id}:{self.attempt}"


class AnswerCompleted(Payload):
    """The final text. Byte for byte the joined deltas of `attempt`."""

    TYPE = "answer.completed"

    thread_id: str
    query_id: str
    attempt: int
    text: str
    outcome: Literal["answered", "unanswerable"] = "answered"
    citations: tuple[Citation, ...] = ()
    input_tokens: int | None = None
    output_tokens: int | None = None

    def identity(self) -> str:
        return self.query_id


class AnswerFailed(Payload):
    """No answer will come. `text` is what may be shown, such as a refusal."""

    TYPE = "answer.failed"

    thread_id: str
    query_id: str
    attempt: int
    code: Literal["refused", "truncated", "filtered", "too_long", "too_many_steps", "cancelled"]
    text: str = ""

    def identity(self) -> str:
        return self.query_id


class AnswerHeld(Payload):
    """The question waits: the thread has open approvals, and it runs when they are decided."""

    TYPE = "answer.held"

    thread_id: str
    query_id: str
    waiting_for: tuple[str, ...]

    def identity(self) -> str:
        return self.query_id


# Approvals


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


# Dead letters


class DeadLetterResolved(Payload):
    """What an operator did with a dead letter."""

    TYPE = "dead_letter.resolved"

    dead_letter_id: str
    action: Literal["replayed", "discarded"]
    operator: str
    reason: str = ""
    replay_count: int = 0
    resolved_at: Instant

    def identity(self) -> str:
        return f"{self.dead_letter_id}:{self.action}:{self.replay_count}"
