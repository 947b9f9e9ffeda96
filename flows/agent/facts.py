"""What a saved thread says happened. A pure function of the state, so that every re-run publishes the same events."""

from typing import Final

from flows.agent import search
from flows.agent.graph import Snapshot, Waiting
from flows.agent.state import WITHDRAWN, PastQuery, past_query
from topics import events
from topics.events import Payload

ANSWERS: Final = ("answered", "unanswerable")
_GIVES_UP: Final[tuple[events.OnNewMessage, ...]] = ("hold", "revise", "cancel")


def query_of(snapshot: Snapshot, query_id: str | None = None) -> PastQuery | None:
    """One query of a thread, the last one unless another is named; None when it is no longer kept."""
    if not snapshot.exists:
        return None
    known = [*snapshot.state.get("past_queries", []), past_query(snapshot.state)]
    wanted = snapshot.state.get("query_id") if query_id is None else query_id
    return next((query for query in reversed(known) if query["query_id"] == wanted), None)


def requests_of(snapshot: Snapshot) -> tuple[events.ApprovalRequested, ...]:
    """Every call that waits for a person."""
    return tuple(request_of(waiting) for waiting in snapshot.waiting)


def on_new_message(snapshot: Snapshot) -> events.OnNewMessage:
    """What a new message does to a thread that waits.

    Of the rules of all its calls that wait, or that were decided and have not run, the one that gives up least: holding gives
    up nothing, revising keeps what was wanted before the model, cancelling keeps nothing.
    """
    rules = {request.terms.on_new_message for request in requests_of(snapshot)}
    if not rules:
        return "hold"
    done, query_id = snapshot.state.get("executed", {}), snapshot.state.get("query_id")
    decided = {
        record["on_new_message"]
        for approval_id, record in snapshot.state.get("decisions", {}).items()
        if record["query_id"] == query_id and approval_id not in done and record["decision"] not in WITHDRAWN
    }
    return next(rule for rule in _GIVES_UP if rule in rules or rule in decided)


def request_of(waiting: Waiting) -> events.ApprovalRequested:
    """One call that waits."""
    return events.ApprovalRequested.model_validate({**waiting.request, "interrupt_id": waiting.interrupt_id})


def executed_of(query: PastQuery, *, thread_id: str) -> tuple[events.ApprovalExecuted, ...]:
    """What became of each decided call."""
    return tuple(
        events.ApprovalExecuted.model_validate({**record, "approval_id": approval_id, "thread_id": thread_id})
        for approval_id, record in query["executed"].items()
    )


def withdrawn_of(query: PastQuery, *, thread_id: str) -> tuple[events.ApprovalWithdrawn, ...]:
    """Requests that were called off before anybody decided."""
    return tuple(
        events.ApprovalWithdrawn(approval_id=approval_id, thread_id=thread_id, reason=reason)
        for approval_id, reason in query["withdrawn"].items()
    )


def final_text(query: PastQuery) -> str | None:
    """The answer's text, or None when there is no answer."""
    outcome = query["outcome"]
    return outcome["text"] if outcome is not None and outcome["code"] in ANSWERS else None


def ending_of(query: PastQuery, *, thread_id: str, attempt: int) -> Payload | None:
    """The last event of a query, or None when it has not ended."""
    outcome = query["outcome"]
    if outcome is None:
        return None
    code, text, query_id = outcome["code"], outcome["text"], query["query_id"]
    if code not in ANSWERS:
        failed = {"thread_id": thread_id, "query_id": query_id, "attempt": attempt, "code": code, "text": text}
        return events.AnswerFailed.model_validate(failed)
    return events.AnswerCompleted(
        thread_id=thread_id,
        query_id=query_id,
        attempt=attempt,
        text=text,
        outcome="answered" if code == "answered" else "unanswerable",
        citations=search.citations_in(text, query["sources"]),
        input_tokens=outcome["input_tokens"],
        output_tokens=outcome["output_tokens"],
    )
