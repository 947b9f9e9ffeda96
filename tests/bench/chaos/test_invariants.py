"""Each invariant holds for a good history, and is seen to break for the history it is there for."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.chaos.account import Account
from bench.chaos.facts import Disturbed, Fact, Published
from bench.chaos.invariants import INVARIANTS, Bounds, kills, not_vacuous
from tests.bench.chaos.histories import History

BOUNDS = Bounds(slots=4, max_buffered=100, max_rss_mb=200.0, frozen_s=30.0, drain_s=20.0, settle_s=15.0)
RIVAL = Bounds(answers=False)


def broken(history: History, bounds: Bounds = BOUNDS) -> set[str]:
    """The invariants that do not hold."""
    account = history.account()
    return {name for name, holds in INVARIANTS.items() if holds(account, bounds)}


def good() -> History:
    """Three records of a key, handled by one worker; it drains, and nothing is wrong."""
    history = History().join("a").assign("a").publish(0, 1, 2).sample()
    for offset in (0, 1, 2):
        history.handle(offset).commit(offset + 1)
    return history.disturb("stop").leave("a")


def test_nothing_breaks_in_a_good_history() -> None:
    assert broken(good()) == set()


def test_i1_an_input_without_an_answer_or_a_dead_letter_is_lost() -> None:
    assert broken(good().publish(3)) == {"I1"}


def test_i1_an_answer_without_its_effect_in_the_worlds_journal_is_a_loss() -> None:
    assert "I1" in broken(good().publish(3).answer(3))


def test_i1_a_dead_letter_and_an_effect_that_is_told_in_doubt_are_ends() -> None:
    assert "I1" not in broken(good().publish(3, 4, effect="irreversible").bury(3).answer(4, "in_doubt"))


def test_i1_of_a_rival_rests_on_effects_and_on_handlers_that_ended() -> None:
    history = History().publish(0, effect="none").publish(1).start(0).end(0)
    assert "I1" in broken(history, RIVAL)
    assert "I1" not in broken(history.start(1).perform(1).end(1), RIVAL)


def test_i2_an_effect_that_was_applied_twice_is_found_and_a_repeated_call_is_none() -> None:
    assert "I2" not in broken(good().perform(1, applied=False))
    assert "I2" in broken(good().perform(1, "b"))


def test_i3_what_was_in_flight_at_a_kill_may_run_again_and_is_counted() -> None:
    history = History().publish(0, 1).start(0).disturb("kill").start(0, "b").end(0, "b", "LeaseBusyError").later(5)
    history.grant(2, "b").handle(0, "b").handle(1, "b")
    assert "I3" not in broken(history)
    [kill] = kills(history.account())
    assert (kill.in_flight, kill.reruns) == ({"q0"}, {"q0"})
    assert kill.takeover_s == pytest.approx(8.0)


def test_i3_what_was_settled_before_the_kill_must_not_run_again() -> None:
    assert "I3" in broken(History().publish(0).handle(0).disturb("kill").start(0, "b"))


def test_i3_a_worker_that_froze_behind_its_claim_may_start_late_and_one_that_claims_late_may_not() -> None:
    assert "I3" not in broken(History().publish(0).claim(0).handle(0, "b").start(0))
    assert "I3" in broken(History().publish(0).handle(0, "b").claim(0).start(0))
    assert "I3" in broken(History().publish(0).claim(0).start(0).end(0, outcome="OutageError").handle(0, "b").claim(0).start(0))


def test_i4_a_commit_above_an_unfinished_record_is_found() -> None:
    history = History().publish(0, 1).start(0).start(1, key="other").end(1, key="other").settle(1)
    assert "I4" not in broken(history.commit(0))
    assert "I4" in broken(history.commit(2))


def test_i4_a_record_that_is_finished_later_does_not_excuse_the_commit() -> None:
    assert "I4" in broken(History().publish(0).start(0).commit(1).perform(0).end(0).settle(0).answer(0))


def test_what_a_killed_or_frozen_worker_had_handled_well_may_be_committed_or_run_again() -> None:
    """It may have settled it and died before it could tell: the next worker then skips it, or runs it."""
    untold = History().publish(0).start(0).perform(0).end(0).disturb("kill").answer(0)
    assert broken(untold.commit(1).later(60).publish(1).handle(1)) == set()
    assert "I3" not in broken(untold.start(0, "b"))
    frozen = History().publish(0).start(0).perform(0).end(0).disturb("freeze").answer(0).commit(1).settle(0)
    assert "I4" not in broken(frozen)
    alive = History().publish(0).start(0).perform(0).end(0).answer(0).publish(1).handle(1)
    assert "I4" in broken(alive.commit(1))


def test_i4_a_dead_letter_whose_writer_was_killed_before_it_could_tell_counts_from_its_claim() -> None:
    history = History().publish(0).start(0).disturb("kill").claim(0, "b").disturb("kill", "b").commit(1).bury(0)
    assert "I4" not in broken(history)
    assert "I4" in broken(History().publish(0).start(0).disturb("kill").claim(0, "b").commit(1).bury(0))


def test_i5_a_position_that_goes_back_is_found() -> None:
    assert "I5" in broken(good().commit(1))
    assert "I5" not in broken(good().commit(3))


def test_i6_a_later_record_that_begins_first_is_found() -> None:
    assert "I6" in broken(History().publish(0, 1).handle(1).handle(0))


def test_i6_two_handlers_of_a_key_at_once_are_found() -> None:
    assert "I6" in broken(History().publish(0, 1).start(0).start(1).end(0).end(1))


def test_i6_the_same_in_another_epoch_or_incarnation_is_a_redelivery() -> None:
    assert "I6" not in broken(History().publish(0, 1).handle(0).start(1).disturb("kill").start(0, "b").start(1, "a", epoch=2))


def test_i6_effects_out_of_order_are_found_across_epochs_unless_they_are_in_doubt() -> None:
    history = (
        History().publish(0, 1, effect="irreversible").perform(1, "b", kind="irreversible").perform(0, "a", kind="irreversible")
    )
    assert "I6" in broken(history)
    assert "I6" not in broken(history.answer(0, "in_doubt"))


def test_i7_an_effect_that_begins_under_an_overtaken_fence_is_found() -> None:
    assert "I7" not in broken(History().grant(1, "a").begin(0, 1, "a").grant(2, "b").begin(0, 2, "b", "in_doubt"))
    assert "I7" in broken(History().grant(1, "a").grant(2, "b").begin(0, 1, "a"))


def test_i7_an_effect_that_was_asked_for_in_time_may_be_told_late() -> None:
    assert "I7" not in broken(History().grant(1, "a").grant(2, "b").begin(0, 1, "a", asked_s_ago=2.0))


@pytest.mark.parametrize("excess", [{"running": 5}, {"buffered": 700}, {"rss_mb": 300.0}])
def test_i8_a_worker_beyond_a_bound_is_found(excess: dict[str, int]) -> None:
    assert "I8" in broken(good().sample(**excess))


def test_i9_a_rebalance_long_after_anything_happened_is_found() -> None:
    assert "I9" in broken(good().later(60).assign("a"))
    assert "I9" not in broken(good().later(60).disturb("kafka_cut").assign("a"))


def test_i10_a_partition_that_stands_still_with_work_is_found() -> None:
    assert "I10" in broken(History().publish(0, 1).handle(0).later(60).handle(1))


def test_i10_a_partition_without_work_may_stand_still() -> None:
    assert "I10" not in broken(History().publish(0).handle(0).later(600).publish(1).handle(1))


def test_i10_a_disturbance_begins_the_time_anew() -> None:
    assert "I10" not in broken(History().publish(0, 1).handle(0).later(25).disturb("broker_kill", "broker").later(25).handle(1))


def test_i10_a_record_that_never_ends_stands_still_too() -> None:
    assert "I10" in broken(History().publish(0, 1).handle(0).later(60).commit(1))


@pytest.mark.parametrize("left", [{"code": 1}, {"seconds": 30.0}])
def test_i11_a_drain_that_fails_or_takes_too_long_is_found(left: dict[str, int]) -> None:
    assert "I11" in broken(good().disturb("stop", "b").leave("b", **left))


def test_i11_a_handler_that_was_left_behind_is_found() -> None:
    assert "I11" in broken(good().publish(3).start(3, "b").disturb("stop", "b").leave("b"))


def test_a_run_with_too_few_kills_at_work_or_too_few_shared_keys_shows_nothing() -> None:
    idle = good().disturb("kill", "b").account()
    assert len(not_vacuous(idle, min_kills=1, min_shared_keys=2)) == 2
    busy = good().publish(3).start(3, "b").disturb("kill", "b").account()
    assert not_vacuous(busy, min_kills=1, min_shared_keys=1) == []


@given(st.integers(0, 2**32))
def test_the_order_in_which_facts_are_read_makes_no_difference(seed: int) -> None:
    history = good().publish(3).start(3, "b").disturb("kill", "b").start(3, "c")
    facts: list[Fact] = list(history.facts)
    random.Random(seed).shuffle(facts)
    shuffled = Account(facts)
    assert [holds(shuffled, BOUNDS) for holds in INVARIANTS.values()] == [
        holds(history.account(), BOUNDS) for holds in INVARIANTS.values()
    ]
    assert len(shuffled.of(Disturbed)) == 2


@given(st.lists(st.sampled_from("ab"), min_size=1, max_size=8), st.integers(0, 7))
def test_a_model_that_finishes_in_order_and_commits_behind_it_breaks_nothing(owners: list[str], dropped: int) -> None:
    """Records of a key pass between two workers, each taking over what the other left; losing any one of them is seen."""
    history = History().publish(*range(len(owners)))
    for offset, who in enumerate(owners):
        history.handle(offset, who, epoch=offset).commit(offset + 1)
    assert broken(history) == set()
    lost = f"q{dropped % len(owners)}"
    history.facts = [one for one in history.facts if isinstance(one, Published) or getattr(one, "event_id", "") != lost]
    assert "I1" in broken(history)
