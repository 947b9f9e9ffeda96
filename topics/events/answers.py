"""Questions, and the answers that stream back."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from topics.events.payload import Payload

FailureCode = Literal[
    "refused",
    "truncated",
    "filtered",
    "too_long",
    "too_large",
    "too_many_steps",
    "budget_exceeded",
    "rejected",
    "cancelled",
    "superseded",
]
"""Why a query ended without an answer."""


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


class QueryContinued(Payload):
    """An operator asks to go on with what a thread left open and no record goes on with any more."""

    TYPE = "query.continued"

    thread_id: str = Field(min_length=1, max_length=200)


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
    """No answer will come. `text` is what may be shown, such as a refusal.

    `refused`: the model said no, with its text. `rejected`: the provider does not take the request; asking again gives the same.
    `superseded`: the customer wrote again while a call waited, and the newer message was taken up instead.
    `too_long`: the conversation does not fit the model. `too_large`: the answer does not fit an event.
    `budget_exceeded`: the tenant has spent what it may on this day (UTC).
    """

    TYPE = "answer.failed"

    thread_id: str
    query_id: str
    attempt: int
    code: FailureCode
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
