"""Publishing a decision, and telling what comes of it."""

import secrets
from dataclasses import dataclass
from typing import Any

import anyio

from topics.catalogue import OUTCOMES
from topics.errors import RejectedError, TimedOutError
from topics.events import ApprovalAccepted, ApprovalDecided, ApprovalExecuted, ApprovalRefused, ApprovalRequested, Decision
from workers.cli import output
from workers.client import Client

OUTCOME_WITHIN_S = 60.0
EXECUTED_WITHIN_S = 20.0


@dataclass(slots=True)
class _Outcome:
    """What came of a decision so far."""

    accepted: ApprovalAccepted | None = None
    refused: ApprovalRefused | None = None
    executed: ApprovalExecuted | None = None

    def take(self, payload: Any, *, approval_id: str, decision_id: str) -> bool:
        """Take note of an event. False when it is about something else."""
        match payload:
            case ApprovalExecuted() if payload.approval_id == approval_id:
                self.executed = payload
            case ApprovalAccepted() if payload.decision_id == decision_id:
                self.accepted = payload
            case ApprovalRefused() if payload.decision_id == decision_id:
                self.refused = payload
            case _:
                return False
        return True

    def is_final(self, decision: Decision) -> bool:
        """Whether nothing more will come of a decision."""
        if self.refused or self.executed:
            return True
        return self.accepted is not None and (self.accepted.standing != "won" or decision in {"reject", "respond"})

    def as_dict(self) -> dict[str, Any]:
        """What is known, plain."""
        told = {"accepted": self.accepted, "refused": self.refused, "executed": self.executed}
        return {name: payload.model_dump(mode="json") for name, payload in told.items() if payload is not None}


async def publish_and_tell(
    client: Client, decided: ApprovalDecided, request: ApprovalRequested, *, tenant: str, as_json: bool
) -> None:
    """Publish a decision, and show what comes of it.

    Raises:
        RejectedError: It did not count.
        TimedOutError: It was published, and nothing came of it in time.
    """
    outcome, decision_id = _Outcome(), secrets.token_hex(12)
    with anyio.move_on_after(OUTCOME_WITHIN_S) as waiting:
        async with client.watch([OUTCOMES]) as events:
            await client.publish(decided, tenant=tenant, event_id=decision_id)
            async for event in events:
                is_ours = outcome.take(event.payload, approval_id=decided.approval_id, decision_id=decision_id)
                if is_ours and outcome.accepted and not outcome.executed:
                    if not as_json:
                        output.print_plain(how_it_stands(outcome.accepted, request, tenant=tenant))
                    # What runs may first wait for the other calls of its turn to be decided.
                    waiting.deadline = anyio.current_time() + EXECUTED_WITHIN_S
                if outcome.is_final(decided.decision):
                    break
    _tell(outcome, request, as_json=as_json)


def how_it_stands(accepted: ApprovalAccepted, request: ApprovalRequested, *, tenant: str) -> str:
    """What an accepted decision means, in a sentence."""
    by = f" by {accepted.approver}" + (f", key {accepted.key_id}" if accepted.key_id else ", unsigned")
    match accepted.standing:
        case "won":
            votes = f" ({accepted.votes} of {accepted.needed} votes)" if accepted.needed > 1 else ""
            return f"{accepted.decision} accepted for {request.tool}{by}{votes}"
        case "counted":
            return f"{accepted.decision} counts for {request.tool}{by}: {accepted.votes} of {accepted.needed} votes"
        case "proposed":
            approve = f"sluice approvals approve {accepted.approval_id} --tenant {tenant} --digest {accepted.args_digest[:12]}"
            return f"{accepted.decision} proposed for {request.tool}{by}; it takes {accepted.needed} of those who may: {approve}"


def _tell(outcome: _Outcome, request: ApprovalRequested, *, as_json: bool) -> None:
    error: RejectedError | TimedOutError | None = None
    if outcome.refused is not None:
        refused = outcome.refused
        why = f"{refused.code}/{refused.reason}" if refused.reason else refused.code
        by = f" ({refused.winner.decision}, by {refused.winner.approver})" if refused.winner else ""
        error = RejectedError(f"the decision did not count: {why}. {refused.detail}{by}", code=refused.code)
    elif outcome.accepted is None and outcome.executed is None:
        error = TimedOutError(
            f"published, but no outcome within {OUTCOME_WITHIN_S:g} s: is an approvals worker running? It will be answered on "
            "approvals.outcomes"
        )
    if error is not None:
        if as_json and outcome.refused is not None:
            output.fail_with(outcome.as_dict(), error)
        raise error
    if as_json:
        output.print_json(outcome.as_dict())
    elif outcome.executed is not None:
        output.print_plain(f"{request.tool}: {outcome.executed.status}")
