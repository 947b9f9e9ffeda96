"""Thread state: small, typed, versioned and JSON-plain, because it is stored.

No enums, dates, decimals or models: stock savers change some of them silently and revive others as objects.
"""

import hashlib
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, TypedDict

from langchain_core.messages import AnyMessage
from langgraph.graph.message import add_messages

from flows.agent.flights import Flights

# What takes the place of a person's decision: the asker called it off, nobody decided in time, the customer wrote again, and the
# policy changed, so that it is asked again. Only an approval whose time ended is not told as withdrawn: it is told as expired.
CANCEL: Final = "cancel"
EXPIRED: Final = "expired"
REVISED: Final = "revised"
AGAIN: Final = "again"
WITHDRAWN: Final = frozenset({CANCEL, REVISED, AGAIN})

KEPT_DECISIONS: Final = 100
KEPT_QUERY_IDS: Final = 200
KEPT_QUERIES: Final = 3


@dataclass(frozen=True, slots=True)
class ThreadRef:
    """One conversation of one tenant."""

    tenant: str
    thread_id: str

    @property
    def checkpoint_id(self) -> str:
        """The name of its checkpoints and its lease: lower-case hex, because a saver's index folds case and splits on commas."""
        return "t" + hashlib.sha256(f"{self.tenant}\n{self.thread_id}".encode()).hexdigest()[:40]


@dataclass(frozen=True, slots=True)
class RunContext:
    """What a run knows besides the state. It is passed on every call, because LangGraph does not store it."""

    thread: ThreadRef
    fence: int
    flights: Flights = field(default_factory=Flights)


class Call(TypedDict):
    """One tool call on its way through the graph.

    `attempt` counts the tries that a person ordered after an effect was left in doubt, and `effect_key` is the idempotency key
    that all of them share; None: it follows from approval and digest. `told` is what a person said came of it.
    """

    approval_id: str
    call_id: str
    message_id: str
    tool: str
    arguments: dict[str, Any]
    args_digest: str
    query_id: str
    requester: str | None
    asked: bool
    edited: bool
    effect_key: str | None
    attempt: int
    told: str | None


class DecisionRecord(TypedDict):
    """A verdict, and the call it was about. `decision` may be one of the words above instead of a person's."""

    query_id: str
    tool: str
    arguments: dict[str, Any]
    args_digest: str
    decision_id: str
    decision: str
    approver: str
    edited_arguments: dict[str, Any] | None
    message: str | None
    on_new_message: str


class ExecutedRecord(TypedDict):
    """What became of an approved, rejected or answered call."""

    tool: str
    arguments: dict[str, Any]
    args_digest: str
    status: str
    result: str


class Source(TypedDict):
    """A passage the model was shown, under its marker."""

    marker: int
    article_id: str
    title: str
    url: str | None
    revision: int
    passage: str


class OutcomeRecord(TypedDict):
    """How a query ended: `answered`, `unanswerable`, or the code of a failure."""

    code: str
    text: str
    input_tokens: int | None
    output_tokens: int | None


class Folding(TypedDict):
    """How often this query folded exchanges into the summary, or tried to, and the tokens of that; None: not all are known."""

    tries: int
    input_tokens: int | None
    output_tokens: int | None


class PastQuery(TypedDict):
    """What is kept of a finished query, for records that are delivered again after the next one began."""

    query_id: str
    outcome: OutcomeRecord | None
    withdrawn: dict[str, str]
    executed: dict[str, ExecutedRecord]
    sources: list[Source]


def merge_decisions(old: dict[str, DecisionRecord] | None, new: dict[str, DecisionRecord]) -> dict[str, DecisionRecord]:
    """Add decisions; when there are too many, the oldest of earlier queries go: the calls of this one wait for all of its own."""
    merged = {**(old or {}), **new}
    ours = {record["query_id"] for record in new.values()}
    earlier = [approval_id for approval_id, record in merged.items() if record["query_id"] not in ours]
    for approval_id in earlier[: max(0, len(merged) - KEPT_DECISIONS)]:
        del merged[approval_id]
    return merged


def merge_executed(old: dict[str, ExecutedRecord] | None, new: dict[str, ExecutedRecord] | None) -> dict[str, ExecutedRecord]:
    """Add what parallel calls did; None, from a new query's input, starts again."""
    return {} if new is None else {**(old or {}), **new}


def merge_doubts(old: dict[str, Call] | None, new: dict[str, Call] | None) -> dict[str, Call]:
    """Add effects in doubt; None, from a new query's input, starts again."""
    return {} if new is None else {**(old or {}), **new}


def merge_sources(old: list[Source] | None, new: list[Source] | None) -> list[Source]:
    """Add passages; None, from a new query's input, starts again."""
    return [] if new is None else [*(old or []), *new]


class AgentState(TypedDict):
    """A thread. `decisions`, `summary` and the `past_` fields outlive a query; those below `user_id` are reset by the next one.

    `summary` is what is left of exchanges that are no longer in `messages`. `asking` counts how often the open calls were asked
    about anew; `doubts` are calls whose effect is in doubt, by call id.
    """

    messages: Annotated[list[AnyMessage], add_messages]
    decisions: Annotated[dict[str, DecisionRecord], merge_decisions]
    summary: str
    past_query_ids: list[str]
    past_queries: list[PastQuery]
    graph_version: str
    tenant: str
    user_id: str | None
    query_id: str
    model_calls: int
    folding: Folding | None
    asking: int
    doubts: Annotated[dict[str, Call], merge_doubts]
    sources: Annotated[list[Source], merge_sources]
    executed: Annotated[dict[str, ExecutedRecord], merge_executed]
    outcome: OutcomeRecord | None


def past_query(state: AgentState) -> PastQuery:
    """The current query as it is kept once it is over."""
    return {
        "query_id": state.get("query_id", ""),
        "outcome": state.get("outcome"),
        "withdrawn": {
            approval_id: decision["message"] or ""
            for approval_id, decision in state.get("decisions", {}).items()
            if decision["decision"] in WITHDRAWN and decision["query_id"] == state.get("query_id")
        },
        "executed": state.get("executed", {}),
        "sources": state.get("sources", []),
    }


def next_query(
    state: AgentState, *, message: AnyMessage, thread: ThreadRef, user_id: str | None, graph_version: str
) -> dict[str, Any]:
    """The input that starts a query on a thread without open tasks."""
    past_ids, past = state.get("past_query_ids", []), state.get("past_queries", [])
    # A new thread's state is empty.
    if state.get("query_id"):
        past_ids, past = [*past_ids, state["query_id"]], [*past, past_query(state)]
    return {
        "messages": [message],
        "past_query_ids": past_ids[-KEPT_QUERY_IDS:],
        "past_queries": past[-KEPT_QUERIES:],
        "graph_version": graph_version,
        "tenant": thread.tenant,
        "user_id": user_id,
        "query_id": message.id or "",
        "model_calls": 0,
        "folding": None,
        "asking": 0,
        "outcome": None,
        # None tells the reducers to start again.
        "doubts": None,
        "sources": None,
        "executed": None,
    }
