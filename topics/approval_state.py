"""An approval as it is kept while people decide: what was asked, what was said, and what stands.

Nothing in it says more than the topics do: it can be rebuilt from requests and outcomes. The rules by which it moves are in
`flows/approvals/machine.py`.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from topics.events import ApprovalAccepted, ApprovalRefused, ApprovalRequested, Terms, TimerStep, Verdict

ApprovalStatus = Literal["pending", "decided", "withdrawn", "expired"]
Answer = ApprovalAccepted | ApprovalRefused


class Moment(NamedTuple):
    """When something is to be done about an approval that still waits. `number` counts reminders, or escalations, from 1."""

    at: datetime
    step: TimerStep
    number: int


class Candidate(BaseModel):
    """Arguments that can win. To approve them, their digest is echoed; `terms` say who must, and how many.

    `proposed_by` and `decision_id` are of the edit that made it; None for the call as it was ordered.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    digest: str
    arguments: dict[str, Any]
    terms: Terms
    proposed_by: str | None = None
    decision_id: str | None = None


class ApprovalState(BaseModel):
    """One approval. `status` is `pending` until a verdict, a withdrawal or the end of its time; then only answers repeat.

    `answers` holds every decision that counted, and the last ones that did not, oldest first; an expired approval has a verdict
    where the end of the time rejects. `level` counts the escalations that were reached, `revision` the changes.
    `announced`: the request is known to be on its topic.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    tenant: str
    request: ApprovalRequested
    status: ApprovalStatus = "pending"
    amendments: tuple[Candidate, ...] = ()
    answers: tuple[Answer, ...] = ()
    level: int = 0
    reminders: int = 0
    verdict: Verdict | None = None
    reason: str = ""
    revision: int = 0
    announced: bool = False

    @property
    def original(self) -> Candidate:
        """The call as it was ordered."""
        request = self.request
        return Candidate(digest=request.args_digest, arguments=request.arguments, terms=request.terms)

    def candidate(self, digest: str) -> Candidate | None:
        """What a digest names here."""
        return next((one for one in (self.original, *self.amendments) if one.digest == digest), None)

    def answer_to(self, decision_id: str) -> Answer | None:
        """What the sender of a decision was told."""
        return next((one for one in self.answers if one.decision_id == decision_id), None)

    def votes(self) -> dict[str, ApprovalAccepted]:
        """Where each person stands: their last approval or edit that counted."""
        return {
            one.approver: one
            for one in self.answers
            if isinstance(one, ApprovalAccepted) and one.decision in {"approve", "edit"} and one.standing != "proposed"
        }

    def withdrawn(self, reason: str) -> "ApprovalState":
        """Take it back if it still waits. A verdict that was first stays."""
        return self.changed(status="withdrawn", reason=reason) if self.status == "pending" else self

    def changed(self, **fields: Any) -> "ApprovalState":
        """The next revision."""
        return self.model_copy(update={**fields, "revision": self.revision + 1})

    def moments(self) -> tuple[Moment, ...]:
        """What is to come, soonest first: the next reminder, the next escalation, the end. None once it is closed."""
        request = self.request
        terms, asked_at = request.terms, request.requested_at
        found: list[Moment] = []
        if self.status == "pending" and asked_at is not None:
            if terms.remind_every_s:
                number = self.reminders + 1
                found.append(Moment(asked_at + timedelta(seconds=terms.remind_every_s * number), "remind", number))
            if self.level < len(terms.escalations):
                after_s = terms.escalations[self.level].after_s
                found.append(Moment(asked_at + timedelta(seconds=after_s), "escalate", self.level + 1))
        if self.status == "pending" and request.expires_at is not None:
            found.append(Moment(request.expires_at, "expire", 1))
        return tuple(sorted(found))

    def due(self, now: datetime) -> Moment | None:
        """What is to be done now. The end goes before all else; of reminders that were missed only the last is made up for."""
        past = {moment.step: moment for moment in self.moments() if moment.at <= now}
        if reminder := past.get("remind"):
            every_s = self.request.terms.remind_every_s or 1
            missed = int((now - reminder.at).total_seconds() // every_s)
            past["remind"] = Moment(reminder.at + timedelta(seconds=missed * every_s), "remind", reminder.number + missed)
        return past.get("expire") or past.get("escalate") or past.get("remind")


@dataclass(frozen=True, slots=True)
class ApprovalQuery:
    """Which open approvals to list, oldest first.

    Args:
        tenant: Whose. None is every tenant's, which only an operator may ask for.
        tool: Its exact name.
        older_than_s: Seconds that it has waited, at least.
        min_amount, max_amount: Of the amount that the policy read, in minor units, both included.
        cursor: Of the page before.
    """

    tenant: str | None
    tool: str | None = None
    older_than_s: float | None = None
    min_amount: int | None = None
    max_amount: int | None = None
    limit: int = 50
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class ApprovalPage:
    """Some open approvals. `cursor` asks for the next ones; None at the end."""

    approvals: tuple[ApprovalState, ...]
    cursor: str | None = None
