"""What time does to an approval that waits: reminders, escalations, its end. Pure.

Time can say no and never yes. The end races decisions through the same compare-and-set; which of them is stored first stands.
"""

from datetime import datetime, timedelta
from typing import Final

from topics.approval_state import ApprovalState, Moment
from topics.errors import TooEarlyError
from topics.events import ApprovalEscalated, ApprovalExpired, ApprovalReminded, Payload, Verdict

EXPIRY: Final = "sluice/expiry"
NOT_IN_TIME: Final = "Nobody decided in time."
# Clocks of workers may differ by so much.
SKEW_S: Final = 5.0


def step(state: ApprovalState, moment: Moment, *, now: datetime) -> tuple[ApprovalState, Payload | None]:
    """Do what a moment asks for: remind, escalate or expire. Done before: the same again.

    Returns:
        The next state, the same object where nothing changed, and the event; None where it is of no use any more.

    Raises:
        TooEarlyError: By this clock, and a tolerance, the moment has not come.
    """
    done = _done(state, moment)
    if done is not None or state.status != "pending":
        return state, done
    _check_time(state, moment, now=now)
    match moment.step:
        case "remind":
            after = state.changed(reminders=moment.number)
        case "escalate":
            after = state.changed(level=moment.number)
        case "expire":
            after = state.changed(status="expired", verdict=verdict_of_expiry(state))
    return after, _done(after, moment)


def verdict_of_expiry(state: ApprovalState) -> Verdict | None:
    """What the end of the time decides: a rejection, or nothing where the whole query is called off."""
    if state.request.terms.at_expiry == "cancel":
        return None
    return Verdict(decision_id=f"{state.request.approval_id}:expiry", decision="reject", approver=EXPIRY, message=NOT_IN_TIME)


def _check_time(state: ApprovalState, moment: Moment, *, now: datetime) -> None:
    """Compare with what the request says, not with what the event says.

    Raises:
        TooEarlyError: It has not come.
    """
    coming = {one.step: one for one in state.moments()}.get(moment.step)
    if coming is None or (moment.step == "escalate" and moment.number != coming.number):
        raise TooEarlyError(f"{moment.step} {moment.number} is not the next", retry_after_s=SKEW_S)
    more = moment.number - coming.number if moment.step == "remind" else 0
    at = coming.at + timedelta(seconds=more * (state.request.terms.remind_every_s or 0))
    left_s = (at - now).total_seconds()
    if left_s > SKEW_S:
        raise TooEarlyError(f"{moment.step} is {left_s:.0f} s early", retry_after_s=left_s)


def _done(state: ApprovalState, moment: Moment) -> Payload | None:
    """The event of a step that was done."""
    approval_id, thread_id, terms = state.request.approval_id, state.request.thread_id, state.request.terms
    if moment.step == "remind" and 0 < moment.number <= state.reminders:
        return ApprovalReminded(approval_id=approval_id, thread_id=thread_id, reminder=moment.number)
    if moment.step == "escalate" and 0 < moment.number <= state.level:
        reached = terms.escalations[moment.number - 1]
        return ApprovalEscalated(
            approval_id=approval_id, thread_id=thread_id, level=moment.number, people=reached.people, roles=reached.roles
        )
    if moment.step == "expire" and state.status == "expired":
        return ApprovalExpired(approval_id=approval_id, thread_id=thread_id, at_expiry=terms.at_expiry)
    return None
