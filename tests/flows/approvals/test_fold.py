"""P12: the state of every approval can be rebuilt from the two topics alone."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from flows.approvals import timing
from flows.approvals.fold import fold
from flows.approvals.machine import BadEdit, Refusal, refuse, refused, told, vote
from tests.fakes.clock import START
from tests.flows.approvals.test_machine import asked, ballot, edit
from topics.approval_state import ApprovalState
from topics.catalogue import OUTCOMES, spec_for
from topics.events import (
    ApprovalExpired,
    ApprovalWithdrawn,
    ChainLink,
    Escalation,
    Payload,
    RefusalCode,
    Terms,
)

TERMS = Terms(
    roles=("refunds",),
    quorum=2,
    remind_every_s=50,
    escalations=(Escalation(after_s=120, people=("dan",)), Escalation(after_s=240, people=("eve",))),
    expires_after_s=400,
)
EDITS = [edit(1), edit(2, None), edit(3, Terms(roles=("cfo",))), BadEdit("denied", "too much")]
VOTERS = ["ana", "bo", "cy", "dan", "rita"]
COMMANDS = st.lists(
    st.one_of(
        st.tuples(
            st.just("vote"), st.sampled_from(["ana", "bo", "cy", "dan", "rita"]), st.sampled_from(["d900", "d1", "d3", "none"])
        ),
        st.tuples(st.just("edit"), st.sampled_from(["ana", "bo"]), st.sampled_from(EDITS)),
        st.tuples(st.just("reject"), st.sampled_from(["ana", "dan"]), st.sampled_from(["d900"] * 2)),
        st.tuples(st.just("forge"), st.just("eve"), st.none()),
        st.tuples(st.just("blocked"), st.just("ana"), st.sampled_from(["graph_version", "stale", "thread_gone"])),
        st.tuples(st.just("wait"), st.integers(1, 60), st.none()),
        st.tuples(st.just("again"), st.integers(0, 5), st.none()),
        st.tuples(st.just("withdraw"), st.integers(0, 9), st.none()),
    ),
    max_size=30,
)


class History:
    """One approval, and everything that was published about it."""

    def __init__(self, terms: Terms) -> None:
        self.state = asked(terms).model_copy(update={"announced": True})
        self.published: list[Payload] = [self.state.request]
        self.seconds = 0
        self.number = 0

    def run(self, kind: str, who: Any, what: Any) -> None:
        rules: dict[str, Callable[[Any, Any], None]] = {
            "vote": lambda who, what: self._vote(who, "approve", digest=what),
            "edit": lambda who, what: self._vote(who, "edit", edit=what),
            "reject": lambda who, what: self._vote(who, "reject", digest=what),
            "forge": self._forge,
            "blocked": self._blocked,
            "wait": self._wait,
            "again": self._again,
            "withdraw": self._withdraw,
        }
        rules[kind](who, what)

    def _vote(self, who: str, decision: str, **more: Any) -> None:
        self.number += 1
        role = "cfo" if who == "cy" else "" if who in {"dan", "eve"} else "refunds"
        now = START + timedelta(seconds=self.seconds)
        one = ballot(who, decision, role=role, id_=f"d{self.number}", token=f"t{self.number}", message="why", **more)
        self.state, answer = vote(self.state, one, now=now)
        self.published += told(self.state, answer)

    def _forge(self, who: str, _: Any) -> None:
        if self.state.status == "pending":
            self.number += 1
            forged = ballot(who, id_=f"d{self.number}").decided
            self.state, answer = refuse(self.state, f"d{self.number}", forged, Refusal("forbidden", "unknown_key", "no"))
            self.published.append(answer)

    def _blocked(self, who: str, code: RefusalCode) -> None:
        """A decision that met an obstacle is told so, and judged when it comes again, under the same id."""
        id_ = f"d{self.number + 1}"
        self.published.append(refused(id_, ballot(who).decided, Refusal(code, "", "not yet")))

    def _wait(self, seconds: int, _: Any) -> None:
        self.seconds += seconds
        now = START + timedelta(seconds=self.seconds)
        while moment := self.state.due(now):
            self.state, event = timing.step(self.state, moment, now=now)
            self.published += [event] if event is not None else []

    def _again(self, back: int, _: Any) -> None:
        """A record that was delivered again says the same again."""
        self.published += self.published[-back:] if back else []

    def _withdraw(self, rarely: int, _: Any) -> None:
        was = self.state.status
        if rarely == 0 and was in {"pending", "expired"}:
            self.state = self.state.withdrawn("policy_changed")
            # A query that is called off at its end withdraws what has expired too.
            self.published.append(ApprovalWithdrawn(approval_id="a1", thread_id="T-17", reason="policy_changed"))


def topics_of(published: list[Payload]) -> tuple[list[Payload], list[Payload]]:
    requests = [one for one in published if spec_for(type(one)) is not OUTCOMES]
    link = ChainLink(number=1, previous="", digest="x")
    return requests, [one.model_copy(update={"chain": link}) for one in published if spec_for(type(one)) is OUTCOMES]


@settings(max_examples=400, deadline=None)
@given(commands=COMMANDS, at_expiry=st.sampled_from(["reject", "cancel"]), outcomes_first=st.booleans())
@example(
    commands=[("blocked", "ana", "graph_version"), ("vote", "ana", "d900"), ("vote", "bo", "d900")],
    at_expiry="reject",
    outcomes_first=False,
)
@example(commands=[("blocked", "ana", "stale"), ("forge", "eve", None)], at_expiry="reject", outcomes_first=False)
def test_the_fold_of_the_topics_is_the_state_that_wrote_them(commands: list[Any], at_expiry: str, outcomes_first: bool):
    history = History(TERMS.model_copy(update={"at_expiry": at_expiry}))
    for command in commands:
        history.run(*command)
    requests, outcomes = topics_of(history.published)
    events = [*outcomes, *requests] if outcomes_first else [*requests, *outcomes]
    assert fold(("acme", one) for one in events) == {("acme", "a1"): history.state}


def test_a_decision_that_counted_is_folded_as_one_that_counts_whatever_it_was_told_before():
    waits = asked().model_copy(update={"announced": True})
    no = Refusal("forbidden", "unknown_key", "")
    _, refusal = refuse(waits, "d1", ballot("ana").decided, no)
    decided, accepted = vote(waits, ballot("ana", id_="d1"), now=START)
    for order in ([refusal, accepted], [accepted, refusal]):
        found = fold(("acme", one) for one in (waits.request, *order))["acme", "a1"]
        assert (found.status, found.answers, found.verdict) == ("decided", decided.answers, decided.verdict)


def test_tenants_are_kept_apart_and_what_was_never_requested_is_nothing():
    one = asked()
    expired = ApprovalExpired(approval_id="never requested", thread_id="T-17")
    found = fold([("acme", one.request), ("globex", one.request), ("acme", expired)])
    assert set(found) == {("acme", "a1"), ("globex", "a1")}
    assert found["globex", "a1"] == ApprovalState(tenant="globex", request=one.request, announced=True)
