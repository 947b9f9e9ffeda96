"""What a command line makes the conductor run."""

from pathlib import Path

import pytest

from bench.chaos.__main__ import Plan, command_line, plan_of
from bench.chaos.procedures import CONTROLS, PROCEDURES
from bench.chaos.schedule import kill_loop, to_text


def plan(*arguments: str) -> Plan:
    return plan_of(command_line().parse_args(arguments))


def names(found: Plan) -> list[tuple[str, int]]:
    return [(procedure.name, seed) for procedure, seed in found.ours]


def test_in_full_it_is_three_seeds_of_everything_mixed_then_each_procedure_and_every_control() -> None:
    assert names(plan()) == [("MIX", 1), ("MIX", 2), ("MIX", 3), *((name, 1) for name in PROCEDURES)]
    assert plan().controls == CONTROLS


def test_in_short_it_is_what_catches_most_and_still_every_control() -> None:
    assert {name for name, _ in names(plan("--short"))} == {"P1", "P2", "P5-limit", "P7", "P10", "P11", "P15"}
    assert plan("--short").controls == CONTROLS


def test_a_seed_is_the_first_of_three() -> None:
    assert names(plan("--seed", "7"))[:3] == [("MIX", 7), ("MIX", 8), ("MIX", 9)]


def test_named_procedures_run_in_the_order_they_are_named_and_controls_only_when_they_are() -> None:
    assert names(plan("--only", "P7,MIX")) == [("P7", 1), ("MIX", 1)]
    assert plan("--only", "P7").controls == ()
    assert (names(plan("--only", "controls")), plan("--only", "controls").controls) == ([], CONTROLS)


def test_a_procedure_that_nobody_knows_is_refused() -> None:
    with pytest.raises(KeyError):
        plan("--only", "P99")


def test_a_schedule_is_carried_out_once_as_it_is(tmp_path: Path) -> None:
    kept = tmp_path / "schedule.jsonl"
    kept.write_text(to_text(kill_loop(5, kills=3)))
    assert names(plan("--schedule", str(kept), "--seed", "5")) == [("MIX", 5)]


def test_procedures_are_in_the_order_of_their_numbers() -> None:
    numbers = [int(name.removeprefix("P").partition("-")[0]) for name in PROCEDURES]
    assert numbers == sorted(numbers)
