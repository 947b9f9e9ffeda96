"""Health is progress, against a model that remembers everything."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from infra.health import LONGEST_GAP_S, MemberState, Stage, Watch, observe, stalled, unready

BOUND_S = 60.0
UP = MemberState("g", has_joined=True, is_draining=False, outage=None)

looks = st.lists(
    st.tuples(st.floats(0.1, LONGEST_GAP_S * 1.5), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=60
)  # seconds since the look before, what waits, the mark


def seen(*stages: Stage, until_s: float, watch: Watch | None = None, from_s: float = 0.0) -> Watch:
    """What a watch that looks every five seconds knows at the end."""
    watch = watch or Watch()
    now_s = from_s
    while now_s <= until_s:
        watch = observe(watch, replace(UP, stages=stages), now_s)
        now_s += 5.0
    return watch


def stage(waiting: int, mark: int) -> Stage:
    return Stage("dispatch", waiting, mark, BOUND_S)


@given(looks)
def test_a_stage_is_stalled_exactly_when_waiting_work_kept_its_mark_for_longer_than_the_bound(told: list[tuple[float, int, int]]):
    watch, now_s = Watch(), 0.0
    history: list[tuple[float, int, int]] = []
    for after_s, waiting, mark in told:
        now_s += after_s
        watch = observe(watch, replace(UP, stages=(stage(waiting, mark),)), now_s)
        history.append((now_s, waiting, mark))
        assert bool(stalled(watch, now_s)) == (_standing_s(history) > BOUND_S)


def _standing_s(history: list[tuple[float, int, int]]) -> float:
    """How long the last look's work had stood: back to the first look that saw the same, without a gap."""
    at_s, waiting, mark = history[-1]
    since_s = at_s
    if not waiting:
        return 0.0
    for (earlier_s, was_waiting, was_mark), (later_s, _, _) in reversed(list(pairwise(history))):
        if later_s - earlier_s > LONGEST_GAP_S or not was_waiting or was_mark != mark:
            break
        since_s = earlier_s
    return at_s - since_s


@given(st.integers(1, 5), st.integers(0, 1000), st.floats(BOUND_S + 10, 10_000))
def test_work_that_never_moves_is_always_found(waiting: int, mark: int, until_s: float):
    watch = seen(stage(waiting, mark), until_s=until_s)
    assert stalled(watch, until_s) == ["dispatch"]


@given(st.floats(0, 10_000))
def test_nothing_to_do_is_no_standstill_however_long(until_s: float):
    assert stalled(seen(stage(0, 7), until_s=until_s), until_s) == []


def test_a_process_that_was_stopped_itself_is_not_blamed_for_the_time():
    watch = seen(stage(1, 7), until_s=30.0)
    watch = observe(watch, replace(UP, stages=(stage(1, 7),)), 4000.0)
    assert stalled(watch, 4000.0) == []


def test_stages_are_judged_by_their_own_bounds():
    quick, slow = Stage("quick", 1, 0, 20.0), Stage("slow", 1, 0, 360.0)
    assert stalled(seen(quick, slow, until_s=100.0), 100.0) == ["quick"]


def test_readiness_says_every_reason_and_nothing_when_there_is_none():
    assert unready([UP], {}) == []
    states = [
        replace(UP, group="new", has_joined=False),
        replace(UP, group="leaving", is_draining=True),
        replace(UP, group="paused", outage="Redis cannot serve"),
    ]
    assert unready(states, {"kafka": "no answer"}) == [
        "kafka: no answer",
        "new: no assignment yet",
        "leaving: draining",
        "paused: Redis cannot serve",
    ]
