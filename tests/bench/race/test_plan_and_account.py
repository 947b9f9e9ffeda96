"""P3: what the race asks for, and that its account sees what is wrong."""

from collections import Counter
from dataclasses import replace

import pytest

from bench.race.account import account
from bench.race.plan import PRODUCERS, Shot, shots

THREADS = 30
SHOTS = [shot for own in shots(THREADS, 7) for shot in own]


def _fair() -> tuple[dict[str, str], dict[int, int]]:
    """The answers and effects of a race in which the first shot of each thread won."""
    answers: dict[str, str] = {}
    effects: dict[int, int] = {}
    won: dict[int, Shot] = {}
    for shot in SHOTS:
        first = won.setdefault(shot.thread, shot)
        answers[shot.decision_id] = "won" if first is shot else "duplicate" if first.choice == shot.choice else "late"
        effects[shot.thread] = int(first.choice == "approve")
    return answers, effects


def test_a_seed_gives_the_same_race_again():
    assert shots(THREADS, 7) == shots(THREADS, 7)
    assert shots(THREADS, 7) != shots(THREADS, 8)


def test_each_thread_gets_five_decisions_of_both_kinds_from_five_producers():
    for thread in range(THREADS):
        own = [shot for shot in SHOTS if shot.thread == thread]
        assert sorted(shot.producer for shot in own) == list(range(PRODUCERS))
        assert {shot.choice for shot in own} == {"approve", "reject"}
    assert max(Counter(shot.decision_id for shot in SHOTS).values()) == 1


def test_a_fair_race_holds():
    answers, effects = _fair()
    found = account(SHOTS, threads=THREADS, answers=answers, effects=effects)
    assert found.holds
    assert found.answered == found.decisions == THREADS * PRODUCERS
    assert found.answers["won"] == THREADS


@pytest.mark.parametrize("fault", ["silent", "second winner", "no winner", "double", "missing", "rejected but run"])
def test_each_fault_is_seen(fault: str):
    answers, effects = _fair()
    approved = next(thread for thread, count in effects.items() if count)
    rejected = next(thread for thread, count in effects.items() if not count)
    loser = next(shot for shot in SHOTS if answers[shot.decision_id] != "won")
    winner = next(shot for shot in SHOTS if answers[shot.decision_id] == "won")
    match fault:
        case "silent":
            del answers[loser.decision_id]
        case "second winner":
            answers[loser.decision_id] = "won"
        case "no winner":
            answers[winner.decision_id] = "late"
        case "double":
            effects[approved] += 1
        case "missing":
            effects[approved] = 0
        case _:
            effects[rejected] = 1
    assert not account(SHOTS, threads=THREADS, answers=answers, effects=effects).holds


def test_a_doubled_effect_is_not_made_good_by_a_missing_one():
    answers, effects = _fair()
    first, second, *_ = (thread for thread, count in effects.items() if count)
    effects |= {first: 2, second: 0}
    found = account(SHOTS, threads=THREADS, answers=answers, effects=effects)
    assert found.effects == found.effects_expected
    assert found.double_effects == 1
    assert not replace(found, wrong=()).holds
