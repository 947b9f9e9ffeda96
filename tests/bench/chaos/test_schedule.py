"""Schedules: a seed tells all of it, and what was printed can be done again."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from bench.chaos.schedule import LASTS_S, OTHERS, Disturbance, from_text, kill_loop, mixed, to_text

seeds = st.integers(0, 2**32)


@given(seeds, st.integers(1, 60), st.integers(0, 20))
def test_the_same_seed_gives_the_same_schedule_and_its_text_gives_it_again(seed: int, kills: int, others: int) -> None:
    schedule = mixed(seed, kills=kills, others=others)
    assert schedule == mixed(seed, kills=kills, others=others)
    assert from_text(to_text(schedule)) == schedule


@given(seeds, st.integers(1, 60), st.integers(0, 20))
def test_a_mixed_schedule_has_all_its_kills_and_disturbances_in_time(seed: int, kills: int, others: int) -> None:
    schedule = mixed(seed, kills=kills, others=others, workers=3)
    kinds = [one.kind for one in schedule]
    assert kinds.count("kill") == kills
    assert len(kinds) == kills + others
    assert {kind for kind in kinds if kind != "kill"} <= set(OTHERS)
    assert all(one.at_s + one.for_s <= after.at_s for one, after in pairwise(schedule))
    assert all(one.target in {"w1", "w2", "w3"} for one in schedule if one.kind in {"kill", "stop", "freeze"})
    assert all((one.for_s > 0) == (one.kind in LASTS_S) for one in schedule)


def test_every_other_disturbance_comes_about_as_often_as_the_next() -> None:
    kinds = [one.kind for one in mixed(1, kills=0, others=2 * len(OTHERS))]
    assert all(kinds.count(kind) == 2 for kind in OTHERS)


@given(seeds, st.integers(1, 60))
def test_kills_come_two_to_eight_seconds_apart(seed: int, kills: int) -> None:
    schedule = kill_loop(seed, kills=kills)
    moments = [0.0, *(one.at_s for one in schedule)]
    assert all(1.98 <= after - before <= 8.02 for before, after in pairwise(moments))


def test_another_seed_gives_another_schedule() -> None:
    assert kill_loop(1, kills=10) != kill_loop(2, kills=10)


def test_a_schedule_may_be_written_by_hand() -> None:
    assert from_text('{"at_s": 1.5, "kind": "kill", "target": "w2"}\n\n') == [Disturbance(1.5, "kill", "w2")]
