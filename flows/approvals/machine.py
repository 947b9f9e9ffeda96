"""How an approval moves: a state and a command in, the next state and an answer out. Pure.

Every decision is answered once and for all: the answer is kept in the state, and given again when the decision comes again.
Whoever stores the next state does so by compare-and-set on its revision, and begins again from what stands when it lost.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from flows.approvals.timing import SKEW_S
from topics import sizes
from topics.approval_state import Answer, ApprovalState, Candidate
from topics.events import (
    ApprovalAccepted,
    ApprovalAmended,
    ApprovalDecided,
    ApprovalRefused,
    Payload,
    RefusalCode,
    Terms,
    Verdict,
)

KEPT_REFUSALS: Final = 50
MAX_ACCEPTED: Final = 200
MAX_ACCEPTED_OF_ONE: Final = 40  # whoever repeats themselves must not use up everybody's
MAX_AMENDMENTS: Final = 20
_WITHDRAWN: Final = {"policy_changed": "the policy changed: it is asked again"}


@dataclass(frozen=True, slots=True)
class Voter:
    """Who decided, as it was shown. `key_id` and `token_id` are None where an unsigned word was good enough."""

    person: str
    roles: frozenset[str] = frozenset()
    key_id: str | None = None
    token_id: str | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit that the policy would let through: the arguments as they would run, their digest, and who must agree.

    `terms` is None where the policy would not ask: then those of the call as it was ordered are asked.
    """

    digest: str
    arguments: dict[str, object]
    terms: Terms | None


@dataclass(frozen=True, slots=True)
class BadEdit:
    """An edit that cannot count, and why. The detail quotes no value."""

    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Ballot:
    """One decision, ready to be judged. `edit` is set for edits, `stands` tells whether a key's word still counts."""

    decision_id: str
    decided: ApprovalDecided
    voter: Voter
    edit: Edit | BadEdit | None = None
    stands: Callable[[str | None], bool] = lambda _: True


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a decision does not count."""

    code: RefusalCode
    reason: str
    detail: str


def vote(state: ApprovalState, ballot: Ballot, *, now: datetime) -> tuple[ApprovalState, Answer]:
    """Judge one decision.

    Approvals and edits are votes for the candidate that their digest names; a person has one, and moves it by approving another.
    A candidate wins with the quorum of its terms. One rejection or response decides at once.

    Returns:
        The next state, which is the same object where nothing changed, and the answer.
    """
    known = repeated(state, ballot.decision_id, ballot.decided)
    if known is not None:
        return state, known
    refusal = _refusal(state, ballot, now=now)
    if refusal is not None:
        return refuse(state, ballot.decision_id, ballot.decided, refusal)
    if ballot.decided.decision in {"approve", "edit"}:
        return _count(state, ballot)
    return _decide_alone(state, ballot)


def refuse(
    state: ApprovalState, decision_id: str, decided: ApprovalDecided, refusal: Refusal
) -> tuple[ApprovalState, ApprovalRefused]:
    """Answer that a decision does not count. While the approval waits that is kept, since it could be judged otherwise later."""
    known = repeated(state, decision_id, decided)
    if isinstance(known, ApprovalRefused):
        return state, known
    answer = refused(decision_id, decided, refusal, winner=state.verdict if refusal.code in {"duplicate", "late"} else None)
    return (answered(state, answer) if state.status == "pending" else state), answer


def refused(decision_id: str, decided: ApprovalDecided, refusal: Refusal, *, winner: Verdict | None = None) -> ApprovalRefused:
    """An answer that is not kept: it could not be otherwise later, or the same decision may then count."""
    return ApprovalRefused(
        approval_id=decided.approval_id,
        thread_id=decided.thread_id,
        decision_id=decision_id,
        code=refusal.code,
        reason=refusal.reason,
        detail=refusal.detail,
        winner=winner,
    )


def repeated(state: ApprovalState, decision_id: str, decided: ApprovalDecided) -> Answer | None:
    """The answer to a decision that came before. To be looked for before a signature is read: that may be out of date by now.

    Two senders that chose one id: the second is told so. Where the first was refused, nothing tells them apart, and both are.
    """
    known = state.answer_to(decision_id)
    if isinstance(known, ApprovalAccepted) and not _is_the_same(known, decided):
        return refused(decision_id, decided, Refusal("mismatch", "decision_id", "another decision has this id"))
    return known


def answered(state: ApprovalState, answer: Answer) -> ApprovalState:
    """Keep an answer; of refusals only the last ones, so that nobody fills the store with them."""
    answers = (*state.answers, answer)
    refused = [one for one in answers if isinstance(one, ApprovalRefused)]
    oldest = refused[0].decision_id if len(refused) > KEPT_REFUSALS else None
    return state.changed(answers=tuple(one for one in answers if one.decision_id != oldest))


def told(state: ApprovalState, answer: Answer) -> tuple[Payload, ...]:
    """Everything that a decision leads to on the topics, before the thread is resumed."""
    made = next((one for one in state.amendments if one.decision_id == answer.decision_id), None)
    return (answer,) if made is None else (amended(state, made), answer)


def amended(state: ApprovalState, made: Candidate) -> ApprovalAmended:
    """What approvers of an edit need to know."""
    return ApprovalAmended(
        approval_id=state.request.approval_id,
        thread_id=state.request.thread_id,
        arguments=made.arguments,
        args_digest=made.digest,
        terms=made.terms,
        proposed_by=made.proposed_by or "",
    )


def verdict_of_vote(state: ApprovalState, winning: ApprovalAccepted) -> Verdict:
    """What a decision that won has decided. An edit is what its approvers agreed to, whoever was the last of them."""
    if winning.decision in {"reject", "respond"}:
        return Verdict(
            decision_id=winning.decision_id, decision=winning.decision, approver=winning.approver, message=winning.message
        )
    is_edit = winning.args_digest != state.request.args_digest
    voters = [one.approver for one in state.votes().values() if one.args_digest == winning.args_digest]
    return Verdict(
        decision_id=winning.decision_id,
        decision="edit" if is_edit else "approve",
        approver=", ".join(dict.fromkeys([*voters, winning.approver])),
        arguments=winning.arguments if is_edit else None,
        message=winning.message,
    )


def has_authority(state: ApprovalState, terms: Terms, *, person: str, roles: frozenset[str]) -> bool:
    """Whether a person may decide under some terms, with the escalations of theirs that are reached.

    An edit's own escalations count from the time that the request's reached, and never before the policy says so.
    """
    if terms.requester_excluded and person == state.request.requester:
        return False
    if not terms.people and not terms.roles:
        return True
    reached_s = max((one.after_s for one in state.request.terms.escalations[: state.level]), default=-1)
    reached = [one for one in terms.escalations if one.after_s <= reached_s]
    people = {*terms.people, *(name for one in reached for name in one.people)}
    named = {*terms.roles, *(name for one in reached for name in one.roles)}
    return person in people or not named.isdisjoint(roles)


def _refusal(state: ApprovalState, ballot: Ballot, *, now: datetime) -> Refusal | None:
    """Why a decision cannot count, or None. What stands is told first."""
    decided = ballot.decided
    if closed := _closed(state, ballot):
        return closed
    if state.request.expires_at is not None and now > state.request.expires_at + timedelta(seconds=SKEW_S):
        return Refusal("expired", "too_late", "the time to decide is over")
    if _is_used(state, ballot.voter.token_id):
        return Refusal("forbidden", "replayed", "this signature was used before")
    if _is_too_long(ballot):
        return Refusal("forbidden", "too_long", "the message or the name is too long")
    target = state.candidate(decided.args_digest)
    if target is None:
        return Refusal("mismatch", "digest", "the digest is not that of what waits")
    if decided.decision not in _allowed(state, target):
        return Refusal("forbidden", "not_allowed", f"allowed here: {', '.join(state.request.allowed_decisions)}")
    if decided.decision == "edit":
        return _edit_refusal(state, ballot)
    return _authority_refusal(state, ballot.voter, target.terms) or _vote_refusal(state, ballot, target)


def _is_the_same(known: ApprovalAccepted, decided: ApprovalDecided) -> bool:
    if (known.decision, known.message) != (decided.decision, decided.message):
        return False
    if decided.decision != "edit" and known.args_digest != decided.args_digest:
        return False
    # A signed decision's person is in its signature.
    return decided.signature is not None or known.key_id is not None or known.approver == decided.approver


def _closed(state: ApprovalState, ballot: Ballot) -> Refusal | None:
    if state.status == "withdrawn":
        # A reason of people is prose; what a program can act on is one word.
        reason = state.reason if state.reason.isidentifier() else ""
        return Refusal("stale", reason, _WITHDRAWN.get(reason, "the action is no longer wanted"))
    if state.status == "expired":
        return Refusal("expired", "", "nobody decided in time")
    winner = state.verdict
    if winner is None:
        return None
    if _says_the_same(state, ballot, winner):
        return Refusal("duplicate", "decided", "decided the same way before")
    return Refusal("late", "decided", "decided otherwise before")


def _says_the_same(state: ApprovalState, ballot: Ballot, winner: Verdict) -> bool:
    decided = ballot.decided
    edited = ballot.edit.arguments if isinstance(ballot.edit, Edit) else decided.arguments
    if decided.decision == winner.decision:
        return decided.decision != "edit" or edited == winner.arguments
    # Whoever approves the edit that won says the same as it does.
    named = state.candidate(decided.args_digest)
    return decided.decision == "approve" and winner.decision == "edit" and named is not None and named.arguments == winner.arguments


def _is_used(state: ApprovalState, token_id: str | None) -> bool:
    if token_id is None:
        return False
    return any(isinstance(one, ApprovalAccepted) and one.token_id == token_id for one in state.answers)


def _is_too_long(ballot: Ballot) -> bool:
    """Whether its answer would not fit into an event: what is recorded must be told."""
    message, name = sizes.json_bytes(ballot.decided.message), sizes.json_bytes(ballot.voter.person)
    return message > sizes.MAX_DECISION_MESSAGE_BYTES or name > sizes.MAX_NAME_BYTES


def _allowed(state: ApprovalState, target: Candidate) -> set[str]:
    allowed: set[str] = set(state.request.allowed_decisions)
    # Where edits are allowed, others must be able to agree to one.
    return allowed | {"approve"} if "edit" in allowed and target.proposed_by is not None else allowed


def _edit_refusal(state: ApprovalState, ballot: Ballot) -> Refusal | None:
    edit = ballot.edit
    if edit is None or isinstance(edit, BadEdit):
        found = edit or BadEdit("invalid_arguments", "an edit needs arguments")
        return Refusal("invalid_edit", found.reason, f"{found.reason}: {found.detail}")
    target = state.candidate(edit.digest) or _candidate(state, ballot, edit)
    if state.candidate(edit.digest) is None and len(state.amendments) >= MAX_AMENDMENTS:
        return Refusal("invalid_edit", "too_many", f"there are {MAX_AMENDMENTS} edits already")
    # Who may decide on the call may propose another, for others to agree to.
    asked = target.terms if _may(state, ballot.voter, target.terms) else state.request.terms
    return _authority_refusal(state, ballot.voter, asked) or _vote_refusal(state, ballot, target)


def _authority_refusal(state: ApprovalState, voter: Voter, terms: Terms) -> Refusal | None:
    if _may(state, voter, terms):
        return None
    if terms.requester_excluded and voter.person == state.request.requester:
        return Refusal("forbidden", "requester", "who asked for it cannot decide it")
    return Refusal("forbidden", "no_authority", "others must decide this")


def _may(state: ApprovalState, voter: Voter, terms: Terms) -> bool:
    return has_authority(state, terms, person=voter.person, roles=voter.roles)


def _vote_refusal(state: ApprovalState, ballot: Ballot, target: Candidate) -> Refusal | None:
    if ballot.decided.decision in {"reject", "respond"}:
        return None  # it decides at once: no number of votes may stand in its way
    person = ballot.voter.person
    before = state.votes().get(person)
    if before is not None and before.args_digest == target.digest and ballot.stands(before.key_id):
        return Refusal("duplicate", "voted", "your vote for this is counted already")
    accepted = [one.approver for one in state.answers if isinstance(one, ApprovalAccepted)]
    if len(accepted) >= MAX_ACCEPTED or accepted.count(person) >= MAX_ACCEPTED_OF_ONE:
        return Refusal("forbidden", "too_many_votes", f"{MAX_ACCEPTED} votes are counted, and {MAX_ACCEPTED_OF_ONE} of one person")
    return None


def _candidate(state: ApprovalState, ballot: Ballot, edit: Edit) -> Candidate:
    """An edit never needs fewer people than the call that it replaces, nor lets its requester decide."""
    before = state.request.terms
    after = edit.terms or before
    terms = after.model_copy(
        update={
            "quorum": max(before.quorum, after.quorum),
            "requester_excluded": before.requester_excluded or after.requester_excluded,
        }
    )
    return Candidate(
        digest=edit.digest,
        arguments=dict(edit.arguments),
        terms=terms,
        proposed_by=ballot.voter.person,
        decision_id=ballot.decision_id,
    )


def _count(state: ApprovalState, ballot: Ballot) -> tuple[ApprovalState, Answer]:
    edit = ballot.edit if isinstance(ballot.edit, Edit) else None
    target = state.candidate(ballot.decided.args_digest if edit is None else edit.digest)
    amendments = state.amendments
    if target is None and edit is not None:
        target = _candidate(state, ballot, edit)
        amendments = (*amendments, target)
    if target is None:
        raise ValueError("a vote was let through for nothing that waits")
    counts = _may(state, ballot.voter, target.terms)
    others = [one for one in _good_votes(state, target, ballot) if one.approver != ballot.voter.person]
    votes, needed = len(others) + counts, target.terms.quorum
    standing = "proposed" if not counts else "won" if votes >= needed else "counted"
    answer = _accepted(ballot, target, state).model_copy(update={"standing": standing, "votes": votes, "needed": needed})
    after = answered(state, answer).model_copy(update={"amendments": amendments})
    if standing == "won":
        after = after.model_copy(update={"status": "decided", "verdict": verdict_of_vote(after, answer)})
    return after, answer


def _good_votes(state: ApprovalState, target: Candidate, ballot: Ballot) -> list[ApprovalAccepted]:
    """Votes that count now: the key still stands, and the person still may."""
    return [
        one
        for one in state.votes().values()
        if one.args_digest == target.digest
        and ballot.stands(one.key_id)
        and has_authority(state, target.terms, person=one.approver, roles=frozenset(one.roles))
    ]


def _decide_alone(state: ApprovalState, ballot: Ballot) -> tuple[ApprovalState, Answer]:
    answer = _accepted(ballot, state.candidate(ballot.decided.args_digest) or state.original, state)
    after = answered(state, answer)
    return after.model_copy(update={"status": "decided", "verdict": verdict_of_vote(after, answer)}), answer


def _accepted(ballot: Ballot, target: Candidate, state: ApprovalState) -> ApprovalAccepted:
    decided, voter = ballot.decided, ballot.voter
    runs = decided.decision in {"approve", "edit"}
    return ApprovalAccepted(
        approval_id=state.request.approval_id,
        thread_id=state.request.thread_id,
        decision_id=ballot.decision_id,
        decision=decided.decision,
        approver=voter.person,
        args_digest=target.digest,
        arguments=target.arguments if runs and target.proposed_by is not None else None,
        message=decided.message,
        key_id=voter.key_id,
        token_id=voter.token_id,
        roles=tuple(sorted(voter.roles)),
    )
