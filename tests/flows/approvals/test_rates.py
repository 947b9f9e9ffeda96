from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flows.approvals.rates import Rates, rates_of
from tests.flows.approvals.test_machine import asked
from topics.approval_state import ApprovalState
from topics.events import Verdict

ENDS = ("approve", "edit", "reject", "respond", "expired", "withdrawn", "pending")


def state(end: str, *, tool: str = "refund", policy: str = "1", prompt: str = "p", kind: str = "call") -> ApprovalState:
    one = asked()
    request = one.request.model_copy(update={"tool": tool, "policy_version": policy, "prompt_version": prompt, "kind": kind})
    changed: dict[str, Any] = {"request": request, "status": end}
    if end in {"approve", "edit", "reject", "respond"}:
        changed |= {"status": "decided", "verdict": Verdict(decision_id="d", decision=end, approver="kim")}
    return one.model_copy(update=changed)


def only(states: list[ApprovalState]) -> Rates:
    (found,) = rates_of(states)
    return found


def test_rates_are_over_what_people_decided():
    found = only([state(end) for end in ("approve", "approve", "edit", "reject", "expired", "withdrawn", "pending")])
    assert (found.requests, found.decided, found.waiting) == (7, 4, 1)
    assert (found.edit_rate, found.reject_rate) == (0.25, 0.25)


def test_an_end_of_time_that_rejects_is_nobodys_rejection():
    expired = state("expired").model_copy(update={"verdict": Verdict(decision_id="", decision="reject", approver="")})
    found = only([expired])
    assert (found.rejected, found.expired, found.reject_rate) == (0, 1, None)


def test_versions_are_counted_apart_and_doubts_not_at_all():
    found = rates_of([state("edit", prompt="p2"), state("approve"), state("approve", policy="2"), state("reject", kind="in_doubt")])
    assert [one.group for one in found] == [("refund", "1", "p"), ("refund", "1", "p2"), ("refund", "2", "p")]
    assert [(one.requests, one.edit_rate) for one in found] == [(1, 0.0), (1, 1.0), (1, 0.0)]


@given(st.lists(st.tuples(st.sampled_from(ENDS), st.sampled_from("ab"), st.sampled_from("12"))))
def test_every_request_is_counted_once(ends):
    found = rates_of(state(end, tool=tool, policy=policy) for end, tool, policy in ends)
    assert sum(one.requests for one in found) == len(ends)
    assert sum(one.waiting for one in found) == [end for end, *_ in ends].count("pending")
    assert all(one.requests == one.decided + one.expired + one.withdrawn + one.waiting for one in found)
