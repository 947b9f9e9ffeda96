"""Approvals from topics alone: what was requested and what came of it, folded into the states that decided it. Pure.

Nothing is judged again: what was told stands. The two topics have no common order, and none is needed. Within each an event may
stand more than once.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from flows.approvals.machine import answered, verdict_of_vote
from flows.approvals.timing import verdict_of_expiry
from topics.approval_state import Answer, ApprovalState, Candidate
from topics.events import (
    ApprovalAccepted,
    ApprovalAmended,
    ApprovalEscalated,
    ApprovalExpired,
    ApprovalRefused,
    ApprovalReminded,
    ApprovalRequested,
    ApprovalWithdrawn,
    Payload,
)

# What is kept of refusals: those of an approval that waits. The others follow from what stands.
_KEPT: Final = ("forbidden", "invalid_edit", "mismatch", "duplicate")


@dataclass(slots=True)
class Told:
    """What the topics say about one approval."""

    tenant: str
    request: ApprovalRequested | None = None
    amendments: dict[str, ApprovalAmended] = field(default_factory=dict[str, ApprovalAmended])
    answers: list[Answer] = field(default_factory=list[Answer])
    levels: set[int] = field(default_factory=set[int])
    reminders: set[int] = field(default_factory=set[int])
    withdrawn: ApprovalWithdrawn | None = None
    expired: ApprovalExpired | None = None

    def take(self, payload: Payload) -> None:
        """Take note of one event."""
        match payload:
            case ApprovalRequested():
                self.request = self.request or payload
            case ApprovalAmended():
                self.amendments.setdefault(payload.args_digest, payload)
            case ApprovalAccepted() | ApprovalRefused():
                # The link of the chain belongs to the record, not to the answer.
                self.answers.append(payload.model_copy(update={"chain": None}))
            case ApprovalEscalated():
                self.levels.add(payload.level)
            case ApprovalReminded():
                self.reminders.add(payload.reminder)
            case ApprovalWithdrawn():
                self.withdrawn = self.withdrawn or payload
            case ApprovalExpired():
                self.expired = self.expired or payload
            case _:
                pass


def fold(events: Iterable[tuple[str, Payload]]) -> dict[tuple[str, str], ApprovalState]:
    """States by tenant and approval id.

    Args:
        events: Tenants and payloads of both topics, each partition in its order.
    """
    told: dict[tuple[str, str], Told] = {}
    for tenant, payload in events:
        approval_id = getattr(payload, "approval_id", None)
        if isinstance(approval_id, str):
            told.setdefault((tenant, approval_id), Told(tenant)).take(payload)
    return {name: state for name, one in told.items() if (state := state_of(one)) is not None}


def state_of(told: Told) -> ApprovalState | None:
    """The state of one approval, or None where its request is not told: an unknown id was decided, or the topic lost it."""
    if told.request is None:
        return None
    state = ApprovalState(tenant=told.tenant, request=told.request, announced=True)
    for answer in told.answers:
        known = state.answer_to(answer.decision_id)
        if isinstance(answer, ApprovalAccepted):
            state = state if isinstance(known, ApprovalAccepted) else _accept(state, told, answer)
        elif known is None and _is_kept(state, answer):
            state = answered(state, answer)
    for level in sorted(told.levels):
        state = state.changed(level=level)
    for reminder in sorted(told.reminders):
        state = state.changed(reminders=reminder)
    return _close(state, told)


def _accept(state: ApprovalState, told: Told, answer: ApprovalAccepted) -> ApprovalState:
    made = told.amendments.get(answer.args_digest)
    if made is not None and answer.decision == "edit" and state.candidate(made.args_digest) is None:
        candidate = Candidate(
            digest=made.args_digest,
            arguments=made.arguments,
            terms=made.terms,
            proposed_by=made.proposed_by,
            decision_id=answer.decision_id,
        )
        state = state.model_copy(update={"amendments": (*state.amendments, candidate)})
    # A refusal under its id was of an attempt before: what counts in the end is that it counted.
    before = tuple(one for one in state.answers if one.decision_id != answer.decision_id)
    state = answered(state.model_copy(update={"answers": before}), answer)
    if answer.standing != "won":
        return state
    return state.model_copy(update={"status": "decided", "verdict": verdict_of_vote(state, answer)})


def _is_kept(state: ApprovalState, answer: ApprovalRefused) -> bool:
    return (
        answer.winner is None
        and answer.thread_id == state.request.thread_id
        and (answer.code in _KEPT or answer.reason == "too_late")
        and answer.reason != "decision_id"
    )


def _close(state: ApprovalState, told: Told) -> ApprovalState:
    """The first end stands. Which it was is told: a verdict says won, and what expired is told so before it is withdrawn too."""
    if state.status != "pending":
        return state
    if told.expired is not None:
        return state.changed(status="expired", verdict=verdict_of_expiry(state))
    return state if told.withdrawn is None else state.withdrawn(told.withdrawn.reason)
