"""How approvals look to people and to programs."""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from topics.approval_state import ApprovalState, Candidate
from topics.events import Terms


def plain(state: ApprovalState) -> dict[str, Any]:
    """An approval as one JSON object: the request as it was published, and how it stands."""
    votes = [{"approver": one.approver, "digest": one.args_digest, "key_id": one.key_id} for one in state.votes().values()]
    return {
        **state.request.model_dump(mode="json"),
        "tenant": state.tenant,
        "status": state.status,
        "closed_because": state.reason,
        "verdict": state.verdict.model_dump(mode="json") if state.verdict else None,
        "votes": votes,
        "amendments": [one.model_dump(mode="json") for one in state.amendments],
        "level": state.level,
        "reminders": state.reminders,
        "answers": [one.model_dump(mode="json") for one in state.answers],
    }


def lines(state: ApprovalState) -> Iterator[str]:
    """An entry of the list: what identifies it and how it stands, and below it what would be done."""
    request = state.request
    most = max(_votes_for(state, one) for one in _candidates(state))
    about = [request.approval_id, state.tenant, request.thread_id, f"{most} of {request.terms.quorum} votes"]
    if request.amount is not None:
        about.append(f"amount {request.amount}")
    if request.expires_at is not None:
        about.append(f"until {_instant(request.expires_at)}")
    yield "  ".join(about)
    yield f"  {request.tool} {_json(request.arguments)}"


def facts(state: ApprovalState) -> Iterator[tuple[str, str]]:
    """Everything that somebody who decides should see, a line each."""
    request = state.request
    yield from (("approval", request.approval_id), ("tenant", state.tenant), ("thread", request.thread_id))
    yield "status", state.status + (f": {state.reason}" if state.reason else "")
    yield "what will be done", f"{request.tool} ({request.tool_class}) {_json(request.arguments)}"
    yield "digest", request.args_digest
    if request.kind == "in_doubt":
        yield "in doubt", "whether it happened; approve runs it again, respond tells what came of it, reject gives up"
    if request.amount is not None:
        yield "amount", str(request.amount)
    yield "why the agent wants it", request.reason
    if request.requester:
        yield "requester", request.requester + (" (may not decide)" if request.terms.requester_excluded else "")
    yield "who may decide", who_may(request.terms)
    yield "allowed", ", ".join(request.allowed_decisions)
    yield "asked at", _instant(request.requested_at)
    if request.expires_at is not None:
        yield "until", f"{_instant(request.expires_at)}, then {request.terms.at_expiry}"
    yield from _time(state)
    for candidate in _candidates(state):
        of = "votes" if candidate.proposed_by is None else f"edit by {candidate.proposed_by}, {candidate.digest[:12]}"
        people = ", ".join(sorted(who for who, vote in state.votes().items() if vote.args_digest == candidate.digest))
        shown = "" if candidate.proposed_by is None else f"{_json(candidate.arguments)} "
        yield of, f"{shown}{_votes_for(state, candidate)} of {candidate.terms.quorum}" + (f": {people}" if people else "")
    for past in request.history:
        yield "decided before", f"{past.decision} by {past.approver or 'somebody'}: {_json(past.arguments)}"
    if state.verdict is not None:
        yield "verdict", f"{state.verdict.decision} by {state.verdict.approver}"


def who_may(terms: Terms) -> str:
    """Who may decide, in words."""
    named = [*terms.people, *(f"role {role}" for role in terms.roles)]
    among = " or ".join(named) if named else "anybody the tenant's keys know"
    return among if terms.quorum == 1 else f"{terms.quorum} of: {among}"


def _time(state: ApprovalState) -> Iterator[tuple[str, str]]:
    for number, step in enumerate(state.request.terms.escalations, start=1):
        reached = "reached" if number <= state.level else f"after {step.after_s} s"
        yield f"escalation {number}, {reached}", " or ".join([*step.people, *(f"role {role}" for role in step.roles)])
    if state.reminders:
        yield "reminded", f"{state.reminders} times"


def _candidates(state: ApprovalState) -> Sequence[Candidate]:
    return (state.original, *state.amendments)


def _votes_for(state: ApprovalState, candidate: Candidate) -> int:
    return sum(vote.args_digest == candidate.digest for vote in state.votes().values())


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _instant(at: datetime | None) -> str:
    return "" if at is None else f"{at:%Y-%m-%d %H:%M:%S} UTC"
