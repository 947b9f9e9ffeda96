"""Any run of decisions, edits, revocations and moments against a model that only counts."""

from datetime import timedelta
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from flows.approvals import timing
from flows.approvals.machine import BadEdit, Ballot, Edit, Voter, vote
from tests.fakes.clock import START
from topics.approval_state import ApprovalState, Moment
from topics.events import ApprovalAccepted, ApprovalDecided, ApprovalRefused, ApprovalRequested, Escalation, Terms

ROLES = {"ana": {"refunds"}, "bo": {"refunds"}, "cy": {"cfo"}, "dan": set[str](), "rita": {"refunds", "cfo"}}
PEOPLE = st.sampled_from(sorted(ROLES))
CENTS = st.sampled_from([100, 5_000, 80_000])
ENDS_S = 600


def terms_of(cents: int) -> Terms | None:
    """The policy: small is not asked, middle needs the cfo; more than that is never allowed."""
    return None if cents < 1_000 else Terms(roles=("cfo",))


class Approval(RuleBasedStateMachine):
    """`votes` is the model: person -> digest. Who may vote is spelled out by hand below."""

    @initialize(quorum=st.sampled_from([1, 2, 2, 3, 3]))
    def ask(self, quorum: int) -> None:
        terms = Terms(
            roles=("refunds",), quorum=quorum, escalations=(Escalation(after_s=60, people=("dan",)),), expires_after_s=ENDS_S
        )
        request = ApprovalRequested(
            approval_id="a1",
            thread_id="T",
            query_id="q1",
            interrupt_id="i",
            tool="refund",
            tool_class="WRITE",
            arguments={"cents": 900},
            args_digest="900",
            policy_version="1",
            graph_version="1",
            allowed_decisions=("approve", "edit", "reject", "respond"),
            requester="rita",
            requested_at=START,
            expires_at=START + timedelta(seconds=ENDS_S),
            terms=terms,
        )
        self.state = ApprovalState(tenant="acme", request=request)
        self.quorum = quorum
        self.digests = {"900"}
        self.votes: dict[str, tuple[str, str]] = {}
        self.revoked: set[str] = set()
        self.seen: list[tuple[Ballot, Any]] = []
        self.tokens: list[str] = []
        self.escalated = False
        self.end: tuple[str, str] | None = None

    def may(self, person: str, digest: str) -> bool:
        if person == "rita":
            return False
        if digest == "5000":
            return person == "cy"
        return "refunds" in ROLES[person] or (person == "dan" and self.escalated)

    def send(self, person: str, decision: str, digest: str, *, edit: Any = None, token: str | None = None) -> Any:
        number = len(self.seen)
        decided = ApprovalDecided(
            approval_id="a1", thread_id="T", decision=decision, args_digest=digest, approver=person, message=f"m{number}"
        )
        key = f"key {number}"
        ballot = Ballot(
            f"d{number}",
            decided,
            Voter(person, frozenset(ROLES[person]), key, token or f"t{number}"),
            edit,
            lambda one: one not in self.revoked,
        )
        before = self.state
        self.state, answer = vote(self.state, ballot, now=START)
        if before.status != "pending":
            assert self.state is before
        self.seen.append((ballot, answer))
        if isinstance(answer, ApprovalAccepted):
            self.tokens.append(answer.token_id or "")
        return answer

    def good(self, digest: str) -> set[str]:
        return {
            person
            for person, (voted, key) in self.votes.items()
            if voted == digest and key not in self.revoked and self.may(person, digest)
        }

    def expect_vote(self, answer: Any, person: str, digest: str) -> None:
        """What a vote for something that waits must lead to."""
        if self.end is not None:
            assert isinstance(answer, ApprovalRefused)
            return
        if not self.may(person, digest):
            assert (answer.code if isinstance(answer, ApprovalRefused) else answer.standing) in {"forbidden", "proposed"}
            return
        if person in self.good(digest):
            assert (answer.code, answer.reason) == ("duplicate", "voted")
            return
        self.votes[person] = (digest, f"key {len(self.seen) - 1}")
        won = len(self.good(digest)) >= self.quorum
        assert (answer.standing, answer.votes, answer.needed) == ("won" if won else "counted", len(self.good(digest)), self.quorum)
        if won:
            self.end = ("approve" if digest == "900" else "edit", digest)

    @rule(person=PEOPLE, data=st.data())
    def approve(self, person: str, data: st.DataObject) -> None:
        digest = data.draw(st.sampled_from(sorted(self.digests)))
        self.expect_vote(self.send(person, "approve", digest), person, digest)

    @rule(person=PEOPLE, cents=CENTS)
    def edit(self, person: str, cents: int) -> None:
        edit = BadEdit("denied", "") if cents > 10_000 else Edit(str(cents), {"cents": cents}, terms_of(cents))
        answer = self.send(person, "edit", "900", edit=edit)
        if self.end is None and isinstance(edit, BadEdit):
            assert answer.code == "invalid_edit"
            return
        if isinstance(answer, ApprovalAccepted):
            self.digests.add(str(cents))
        if self.end is None and person not in {"rita", "dan"} and not self.may(person, str(cents)):
            assert (answer.code if isinstance(answer, ApprovalRefused) else answer.standing) == (
                "proposed" if "refunds" in ROLES[person] else "forbidden"
            )
            return
        self.expect_vote(answer, person, str(cents))

    @rule(person=PEOPLE, decision=st.sampled_from(["reject", "respond"]), rarely=st.integers(0, 5))
    def decide_alone(self, person: str, decision: str, rarely: int) -> None:
        if rarely:
            return
        answer = self.send(person, decision, "900")
        if self.end is not None:
            assert isinstance(answer, ApprovalRefused)
        elif self.may(person, "900"):
            assert answer.standing == "won"
            self.end = (decision, "900")
        else:
            assert answer.code == "forbidden"

    @rule(person=PEOPLE)
    def approve_what_nobody_showed(self, person: str) -> None:
        answer = self.send(person, "approve", "never shown")
        assert isinstance(answer, ApprovalRefused)
        assert self.end is not None or answer.code == "mismatch"

    @rule(data=st.data())
    def use_a_signature_again(self, data: st.DataObject) -> None:
        if self.tokens:
            answer = self.send("bo", "approve", "900", token=data.draw(st.sampled_from(self.tokens)))
            assert isinstance(answer, ApprovalRefused)
            assert self.end is not None or (answer.code, answer.reason) == ("forbidden", "replayed")

    @rule(data=st.data())
    def deliver_again(self, data: st.DataObject) -> None:
        if self.seen:
            ballot, answer = data.draw(st.sampled_from(self.seen))
            again, repeated = vote(self.state, ballot, now=START)
            assert repeated == answer
            assert again is self.state

    @rule(data=st.data())
    def revoke(self, data: st.DataObject) -> None:
        if self.votes:
            self.revoked.add(self.votes[data.draw(st.sampled_from(sorted(self.votes)))][1])

    @rule()
    def escalate(self) -> None:
        if self.end is None and not self.escalated:
            now = START + timedelta(seconds=60)
            self.state, event = timing.step(self.state, Moment(now, "escalate", 1), now=now)
            assert event is not None
            self.escalated = True

    @rule(end=st.sampled_from(["withdraw", "expire"]), rarely=st.integers(0, 9))
    def end_it(self, end: str, rarely: int) -> None:
        if rarely or self.end is not None:
            return
        now = START + timedelta(seconds=ENDS_S)
        self.state = (
            self.state.withdrawn("x") if end == "withdraw" else timing.step(self.state, Moment(now, "expire", 1), now=now)[0]
        )
        self.end = (end, "")

    @invariant()
    def it_ends_as_the_model_says(self) -> None:
        state = self.state
        if self.end is None:
            assert (state.status, state.verdict) == ("pending", None)
            return
        kind, digest = self.end
        assert state.status == {"withdraw": "withdrawn", "expire": "expired"}.get(kind, "decided")
        if state.status != "decided":
            return
        assert state.verdict is not None
        assert state.verdict.decision == kind
        assert state.verdict.arguments == ({"cents": int(digest)} if kind == "edit" else None)
        assert "rita" not in state.verdict.approver


TestApproval = Approval.TestCase
TestApproval.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
