"""The rules of one approval, each by itself."""

from datetime import timedelta
from itertools import permutations
from typing import Any

import pytest

from flows.approvals import timing
from flows.approvals.machine import (
    KEPT_REFUSALS,
    MAX_ACCEPTED,
    MAX_AMENDMENTS,
    BadEdit,
    Ballot,
    Edit,
    Refusal,
    Voter,
    refuse,
    told,
    vote,
)
from tests.fakes.clock import START
from topics import sizes
from topics.approval_state import ApprovalState, Moment
from topics.errors import TooEarlyError
from topics.events import (
    ApprovalAccepted,
    ApprovalAmended,
    ApprovalDecided,
    ApprovalEscalated,
    ApprovalExpired,
    ApprovalRefused,
    ApprovalReminded,
    ApprovalRequested,
    Escalation,
    Terms,
)

ORDERED = {"order": "A", "cents": 900}
REFUNDS = Terms(roles=("refunds",))
TWO = Terms(roles=("refunds",), quorum=2)


def asked(terms: Terms = REFUNDS, **more: Any) -> ApprovalState:
    fields: dict[str, Any] = {
        "approval_id": "a1",
        "thread_id": "T-17",
        "query_id": "q1",
        "interrupt_id": "i1",
        "tool": "refund",
        "tool_class": "IRREVERSIBLE",
        "arguments": ORDERED,
        "args_digest": "d900",
        "policy_version": "1",
        "graph_version": "1",
        "allowed_decisions": ("approve", "edit", "reject", "respond"),
        "requester": "rita",
        "requested_at": START,
        "expires_at": START + timedelta(seconds=terms.expires_after_s) if terms.expires_after_s else None,
        "terms": terms,
    }
    return ApprovalState(tenant="acme", request=ApprovalRequested.model_validate(fields | more))


def ballot(person: str, decision: str = "approve", *, role: str = "refunds", digest: str = "d900", **more: Any) -> Ballot:
    fields: dict[str, Any] = {
        "approval_id": "a1",
        "thread_id": "T-17",
        "decision": decision,
        "args_digest": digest,
        "approver": person,
        "message": more.pop("message", None),
    }
    voter = Voter(person, frozenset({role}), more.pop("key", f"key of {person}"), more.pop("token", None))
    return Ballot(more.pop("id_", f"{decision} by {person}"), ApprovalDecided(**fields), voter, **more)


def edit(cents: int, terms: Terms | None = REFUNDS) -> Edit:
    return Edit(f"d{cents}", {"order": "A", "cents": cents}, terms)


def after(state: ApprovalState, *ballots: Ballot, later_s: float = 0.0) -> tuple[ApprovalState, list[Any]]:
    answers: list[Any] = []
    for one in ballots:
        state, answer = vote(state, one, now=START + timedelta(seconds=later_s))
        answers.append(answer)
    return state, answers


def why(answer: Any) -> tuple[str, str]:
    assert isinstance(answer, ApprovalRefused), answer
    return answer.code, answer.reason


def standing(answer: Any) -> tuple[str, int, int]:
    assert isinstance(answer, ApprovalAccepted), answer
    return answer.standing, answer.votes, answer.needed


def test_one_who_may_decides_where_one_is_enough():
    state, [answer] = after(asked(), ballot("ana"))
    assert standing(answer) == ("won", 1, 1)
    assert (state.status, state.verdict and state.verdict.approver) == ("decided", "ana")


def test_two_of_three_must_say_yes_and_each_counts_once():
    state, answers = after(asked(TWO), ballot("ana"), ballot("ana", id_="again"), ballot("bo"), ballot("cy"))
    assert standing(answers[0]) == ("counted", 1, 2)
    assert why(answers[1]) == ("duplicate", "voted")
    assert standing(answers[2]) == ("won", 2, 2)
    assert why(answers[3]) == ("duplicate", "decided")
    assert answers[3].winner == state.verdict
    assert state.verdict is not None
    assert (state.verdict.decision_id, state.verdict.approver) == ("approve by bo", "ana, bo")


@pytest.mark.parametrize("order", list(permutations(["ana", "bo", "cy"])))
def test_who_votes_first_does_not_matter_for_what_is_decided(order):
    state, answers = after(asked(Terms(quorum=3)), *(ballot(person) for person in order))
    assert [standing(one)[0] for one in answers] == ["counted", "counted", "won"]
    assert state.verdict is not None
    assert set(state.verdict.approver.split(", ")) == {"ana", "bo", "cy"}


def test_who_asked_for_it_never_decides_it():
    for decision in ("approve", "reject", "respond"):
        state, [answer] = after(asked(Terms(people=("rita",))), ballot("rita", decision))
        assert why(answer) == ("forbidden", "requester")
        assert state.status == "pending"
    state, _ = after(asked(Terms(people=("rita",), requester_excluded=False)), ballot("rita"))
    assert state.status == "decided"


def test_who_is_not_named_decides_nothing():
    state, [answer] = after(asked(Terms(people=("bo",), roles=("cfo",))), ballot("ana"))
    assert why(answer) == ("forbidden", "no_authority")
    assert state.status == "pending"


def test_a_vote_whose_key_was_revoked_does_not_count_at_the_moment_of_winning():
    revoked = {"key of ana"}
    state, answers = after(asked(TWO), ballot("ana"), ballot("bo", stands=lambda key: key not in revoked))
    assert standing(answers[1]) == ("counted", 1, 2)
    state, [again] = after(state, ballot("ana", id_="new key", key="new", stands=lambda key: key not in revoked))
    assert standing(again) == ("won", 2, 2)
    assert state.status == "decided"


def test_one_rejection_decides_against_any_number_of_votes():
    state, answers = after(asked(TWO), ballot("ana"), ballot("bo", "reject", message="no"), ballot("cy"))
    assert standing(answers[1])[0] == "won"
    assert state.verdict is not None
    assert (state.verdict.decision, state.verdict.message) == ("reject", "no")
    assert why(answers[2]) == ("late", "decided")


def test_an_edit_by_one_who_may_wins_as_an_edit():
    state, [answer] = after(asked(), ballot("ana", "edit", edit=edit(500)))
    assert standing(answer) == ("won", 1, 1)
    assert state.verdict is not None
    assert (state.verdict.decision, state.verdict.arguments) == ("edit", {"order": "A", "cents": 500})


def test_a_costlier_edit_is_only_proposed_until_those_who_may_agree():
    """P4: the editor may decide the call, and not what they made of it."""
    state, [proposed] = after(asked(), ballot("ana", "edit", edit=edit(9_000, Terms(roles=("cfo",)))))
    assert standing(proposed) == ("proposed", 0, 1)
    [amended, same] = told(state, proposed)
    assert isinstance(amended, ApprovalAmended)
    assert same == proposed
    assert (amended.args_digest, amended.proposed_by, amended.terms.roles) == ("d9000", "ana", ("cfo",))
    _, [no] = after(state, ballot("bo", digest="d9000"))
    assert why(no) == ("forbidden", "no_authority")
    won, [yes] = after(state, ballot("cy", role="cfo", digest="d9000"))
    assert standing(yes) == ("won", 1, 1)
    assert won.verdict is not None
    assert (won.verdict.decision, won.verdict.arguments) == ("edit", {"order": "A", "cents": 9_000})
    assert won.verdict.approver == "cy"


def test_an_edit_never_needs_fewer_people_than_the_call_it_replaces():
    for terms in (None, REFUNDS):
        state, answers = after(asked(TWO), ballot("ana", "edit", edit=edit(1, terms)), ballot("bo", digest="d1"))
        assert [standing(one) for one in answers] == [("counted", 1, 2), ("won", 2, 2)]
        assert state.verdict is not None
        assert state.verdict.approver == "ana, bo"
    open_terms = Terms(requester_excluded=False)
    _, [answer] = after(asked(), ballot("rita", "edit", edit=edit(1, open_terms)))
    assert why(answer) == ("forbidden", "requester")


def test_approving_an_edit_moves_the_vote():
    two = ballot("ana"), ballot("bo", "edit", edit=edit(1, TWO)), ballot("ana", digest="d1", id_="moved")
    state, answers = after(asked(TWO), *two)
    assert [standing(one) for one in answers] == [("counted", 1, 2), ("counted", 1, 2), ("won", 2, 2)]
    assert state.verdict is not None
    assert state.verdict.decision == "edit"


def test_an_edit_that_changes_nothing_is_an_approval():
    state, [answer] = after(asked(), ballot("ana", "edit", edit=edit(900)))
    assert standing(answer) == ("won", 1, 1)
    assert state.amendments == ()
    assert state.verdict is not None
    assert (state.verdict.decision, state.verdict.arguments) == ("approve", None)


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        (BadEdit("denied", "too much"), "denied"),
        (BadEdit("edit_changes_tool", ""), "edit_changes_tool"),
        (None, "invalid_arguments"),
    ],
)
def test_an_edit_that_cannot_count_changes_nothing(refused, reason):
    state, [answer] = after(asked(), ballot("ana", "edit", edit=refused))
    assert why(answer) == ("invalid_edit", reason)
    assert state.status == "pending"
    assert state.amendments == ()


def test_there_is_an_end_to_edits():
    state = asked(Terms(roles=("refunds",), quorum=3))
    for number in range(MAX_AMENDMENTS):
        state, [answer] = after(state, ballot("ana", "edit", id_=str(number), edit=edit(number)))
        assert standing(answer)[0] == "counted"
    _, [answer] = after(state, ballot("ana", "edit", id_="more", edit=edit(800)))
    assert why(answer) == ("invalid_edit", "too_many")


def test_one_who_repeats_a_proposal_does_not_use_up_everybody_s_votes():
    state, proposal = asked(), edit(1, Terms(roles=("cfo",)))
    repeated = [ballot("ana", "edit", id_=f"p{number}", token=f"t{number}", edit=proposal) for number in range(MAX_ACCEPTED + 1)]
    state, answers = after(state, *repeated)
    assert why(answers[-1]) == ("forbidden", "too_many_votes")
    assert len(state.votes()) == 0
    _, [approved] = after(state, ballot("bo"))
    assert standing(approved)[0] == "won"


def test_no_number_of_votes_stands_in_the_way_of_a_rejection():
    state = asked(Terms(roles=("refunds",), quorum=MAX_ACCEPTED + 1))
    state, _ = after(state, *(ballot(f"p{number}") for number in range(MAX_ACCEPTED)))
    _, [no_more] = after(state, ballot("ana"))
    assert why(no_more) == ("forbidden", "too_many_votes")
    for decision in ("reject", "respond"):
        _, [decided] = after(state, ballot("p1", decision))
        assert standing(decided)[0] == "won"


@pytest.mark.parametrize("decision", ["approve", "edit", "reject", "respond"])
def test_what_is_too_long_to_be_told_does_not_count(decision: str):
    """P3: its answer says it again, and must fit into one event."""
    more = {"edit": edit(1)} if decision == "edit" else {}
    room = sizes.MAX_DECISION_MESSAGE_BYTES - 2  # its quotes
    for person, message in (("ana", "x" * (room + 1)), ("ana", "ü" * (room // 2 + 1)), ("x" * sizes.MAX_NAME_BYTES, "why")):
        state, [answer] = after(asked(), ballot(person, decision, message=message, **more))
        assert why(answer) == ("forbidden", "too_long")
        assert state.status == "pending"
        _, [answer] = after(state, ballot("ana", decision, message="x" * room, id_="shorter", **more))
        assert standing(answer)[0] == "won"


def test_what_waits_is_named_by_its_digest():
    _, answers = after(asked(), ballot("ana", digest="other"), ballot("ana", "reject", digest="other"))
    assert [why(one) for one in answers] == [("mismatch", "digest")] * 2


def test_a_decision_that_is_not_allowed_does_not_count_but_others_may_agree_to_an_edit():
    state = asked(allowed_decisions=("edit", "reject"))
    _, [answer] = after(state, ballot("ana"))
    assert why(answer) == ("forbidden", "not_allowed")
    state, _ = after(state, ballot("ana", "edit", edit=edit(1, Terms(roles=("cfo",)))))
    _, [agreed] = after(state, ballot("cy", role="cfo", digest="d1"))
    assert standing(agreed)[0] == "won"


def test_a_signature_counts_once():
    state, answers = after(asked(TWO), ballot("ana", token="t1"), ballot("ana", token="t1", id_="copied"))
    assert standing(answers[0])[0] == "counted"
    assert why(answers[1]) == ("forbidden", "replayed")
    assert len(state.votes()) == 1


def test_the_same_decision_again_is_answered_the_same_again():
    refused, first, won = ballot("dan", role=""), ballot("ana"), ballot("bo")
    state, answers = after(asked(TWO), refused, first, won)
    again, repeated = after(state, refused, first, won)
    assert repeated == answers
    assert again is state


def test_a_refusal_stands_even_if_the_same_decision_would_count_later():
    terms = Terms(people=("ana",), escalations=(Escalation(after_s=60, people=("dan",)),))
    early = ballot("dan", id_="early")
    state, [no] = after(asked(terms), early)
    state, _ = timing.step(state, Moment(START, "escalate", 1), now=START + timedelta(seconds=60))
    _, [still] = after(state, early)
    assert why(no) == ("forbidden", "no_authority")
    assert still == no
    _, [yes] = after(state, ballot("dan", id_="later"))
    assert standing(yes)[0] == "won"


def test_two_senders_with_one_id_are_not_taken_for_one():
    """P3: nothing is swallowed."""
    state, _ = after(asked(TWO), ballot("ana", id_="1", key=None))
    for other in (ballot("bo", id_="1", key=None), ballot("ana", "reject", id_="1", key=None)):
        again, [answer] = after(state, other)
        assert why(answer) == ("mismatch", "decision_id")
        assert again is state


def test_refusals_do_not_fill_the_store():
    state, _ = after(asked(), *(ballot("dan", role="", id_=str(number)) for number in range(KEPT_REFUSALS + 10)))
    assert len(state.answers) == KEPT_REFUSALS
    assert state.answers[-1].decision_id == str(KEPT_REFUSALS + 9)


def test_a_withdrawn_approval_is_stale():
    state, [answer] = after(asked().withdrawn("policy_changed"), ballot("ana"))
    assert why(answer) == ("stale", "policy_changed")
    assert state.withdrawn("again") is state
    decided, _ = after(asked(), ballot("ana"))
    assert decided.withdrawn("too late") is decided


def test_refusals_of_others_are_kept_while_the_approval_waits():
    forged = ballot("eve")
    state, answer = refuse(asked(), forged.decision_id, forged.decided, Refusal("forbidden", "bad_signature", ""))
    assert after(state, forged)[1] == [answer]


# Time


TIMED = Terms(
    people=("ana",),
    remind_every_s=100,
    escalations=(Escalation(after_s=250, people=("bo",)), Escalation(after_s=450, roles=("cfo",))),
    expires_after_s=600,
)


def at(seconds: float) -> Any:
    return START + timedelta(seconds=seconds)


def test_moments_come_in_order_and_each_once():
    state, seen = asked(TIMED), []
    for second in range(0, 700, 10):
        while moment := state.due(at(second)):
            state, event = timing.step(state, moment, now=at(second))
            assert event is not None
            seen.append((second, moment.step, moment.number))
    assert seen == [
        (100, "remind", 1),
        (200, "remind", 2),
        (250, "escalate", 1),
        (300, "remind", 3),
        (400, "remind", 4),
        (450, "escalate", 2),
        (500, "remind", 5),
        (600, "expire", 1),
    ]
    assert state.moments() == ()
    assert (state.status, state.verdict and state.verdict.approver) == ("expired", timing.EXPIRY)


def test_reminders_that_were_missed_are_made_up_for_by_one():
    state = asked(TIMED).model_copy(update={"level": 2})
    moment = state.due(at(555))
    assert moment == Moment(at(500), "remind", 5)
    state, event = timing.step(state, moment, now=at(555))
    assert event == ApprovalReminded(approval_id="a1", thread_id="T-17", reminder=5)
    assert state.due(at(555)) is None
    assert state.moments()[0] == Moment(at(600), "expire", 1)


def test_the_end_goes_before_everything_that_was_missed():
    state = asked(TIMED)
    moment = state.due(at(10_000))
    assert moment == Moment(at(600), "expire", 1)
    state, event = timing.step(state, moment, now=at(10_000))
    assert event == ApprovalExpired(approval_id="a1", thread_id="T-17")
    assert timing.step(state, Moment(at(250), "escalate", 1), now=at(10_000)) == (state, None)


def test_an_escalation_lets_more_people_decide_and_nobody_before():
    state = asked(TIMED)
    assert why(after(state, ballot("bo"))[1][0]) == ("forbidden", "no_authority")
    with pytest.raises(TooEarlyError):
        timing.step(state, Moment(at(450), "escalate", 2), now=at(500))
    state, event = timing.step(state, Moment(at(250), "escalate", 1), now=at(250))
    assert event == ApprovalEscalated(approval_id="a1", thread_id="T-17", level=1, people=("bo",))
    assert standing(after(state, ballot("bo"), later_s=260)[1][0])[0] == "won"
    assert why(after(state, ballot("cy", role="cfo"), later_s=260)[1][0]) == ("forbidden", "no_authority")


def test_clocks_may_differ_a_little_and_not_much():
    moment = Moment(at(600), "expire", 1)
    state, _ = timing.step(asked(TIMED), moment, now=at(600 - timing.SKEW_S))
    assert state.status == "expired"
    with pytest.raises(TooEarlyError) as early:
        timing.step(asked(TIMED), moment, now=at(500))
    assert early.value.retry_after_s == 100
    assert standing(after(asked(TIMED), ballot("ana"), later_s=600 + timing.SKEW_S)[1][0])[0] == "won"
    assert why(after(asked(TIMED), ballot("ana"), later_s=601 + timing.SKEW_S)[1][0]) == ("expired", "too_late")


def test_a_step_that_was_done_says_the_same_again_and_changes_nothing():
    moment = Moment(at(100), "remind", 1)
    state, event = timing.step(asked(TIMED), moment, now=at(100))
    assert timing.step(state, moment, now=at(100)) == (state, event)
    decided, _ = after(state, ballot("ana"))
    assert timing.step(decided, Moment(at(600), "expire", 1), now=at(600)) == (decided, None)


def test_a_decision_after_the_end_is_told_so():
    state, _ = timing.step(asked(TIMED), Moment(at(600), "expire", 1), now=at(600))
    assert why(after(state, ballot("ana"))[1][0]) == ("expired", "")


def test_a_query_that_is_called_off_at_its_end_has_no_verdict():
    terms = TIMED.model_copy(update={"at_expiry": "cancel"})
    state, event = timing.step(asked(terms), Moment(at(600), "expire", 1), now=at(600))
    assert (state.status, state.verdict) == ("expired", None)
    assert event == ApprovalExpired(approval_id="a1", thread_id="T-17", at_expiry="cancel")


def test_an_edit_s_own_escalations_count_no_sooner_than_its_rule_says():
    later = Terms(people=("zoe",), escalations=(Escalation(after_s=400, people=("bo",)),))
    state, _ = after(asked(TIMED), ballot("ana", "edit", edit=edit(1, later)))
    state, _ = timing.step(state, Moment(at(250), "escalate", 1), now=at(250))
    assert why(after(state, ballot("bo", digest="d1"))[1][0]) == ("forbidden", "no_authority")
    state, _ = timing.step(state, Moment(at(450), "escalate", 2), now=at(450))
    assert standing(after(state, ballot("bo", digest="d1", id_="later"))[1][0])[0] == "won"
