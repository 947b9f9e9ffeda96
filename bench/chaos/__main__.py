"""python -m bench.chaos [--short] [--seed N] [--only P1,P7,MIX,controls] [--schedule FILE] [--inputs N] [--kills N].

Disturbs real workers on a real Apache Kafka and a real Redis, and holds the ledger of what happened against the invariants.
The last line is one JSON object. Exit code 1 when an invariant broke, or a control did not; then ledger and logs are kept.
"""

import argparse
import json
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

import anyio

from bench import rig
from bench.chaos import report, schedule
from bench.chaos.mix import MIX, SCHEDULE_FILE, Mix
from bench.chaos.procedures import CONTROLS, PROCEDURES
from bench.chaos.servers import Servers, serving
from bench.chaos.spec import OURS
from bench.chaos.verdict import Control, Procedure, Verdict
from bench.chaos.world import open_world
from infra.local.apache_kafka import apache_kafka_missing
from infra.telemetry import configure_logging
from topics.errors import SluiceError

SEEDS: Final = 3
RUN_WITHIN_S: Final = 1200.0
CONTROLS_NAME: Final = "controls"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run: procedures of ours, each with a seed, then controls with one."""

    ours: Sequence[tuple[Procedure, int]]
    controls: Sequence[Control]
    seed: int


def plan_of(options: argparse.Namespace) -> Plan:
    """What the command line asks for.

    Raises:
        KeyError: A procedure is not known.
    """
    seed: int = options.seed
    mix = Mix(options.inputs, options.kills, schedule=_schedule(options.schedule))
    mixed = [(Procedure(MIX, "kills and all the rest", mix.run), seed + number) for number in range(SEEDS)]
    named = [(one, seed) for one in PROCEDURES.values()]
    if options.schedule:
        return Plan(mixed[:1], (), seed)
    if options.only:
        wanted = options.only.split(",")
        known = {**PROCEDURES, MIX: mixed[0][0]}
        return Plan(
            [(known[name], seed) for name in wanted if name != CONTROLS_NAME], CONTROLS if CONTROLS_NAME in wanted else (), seed
        )
    if options.short:
        return Plan([one for one in named if one[0].short], CONTROLS, seed)
    return Plan([*mixed, *named], CONTROLS, seed)


def _schedule(path: str | None) -> list[schedule.Disturbance]:
    return schedule.from_text(Path(path).read_text()) if path else []


async def conduct(folder: Path, plan: Plan) -> tuple[list[Verdict], list[tuple[Control, Verdict]]]:
    """Run everything, one after the other, on the same servers."""
    async with serving(folder) as servers:
        verdicts = [await _run(servers, procedure, seed, OURS) for procedure, seed in plan.ours]
        controls = [(one, await _run(servers, one.procedure, plan.seed, one.engine)) for one in plan.controls]
    return verdicts, controls


async def _run(servers: Servers, procedure: Procedure, seed: int, engine: str) -> Verdict:
    """One run in a world of its own. A run that cannot be brought to its end has failed."""
    name = run_name(procedure.name, engine, seed)
    _say(f"{procedure.name} {procedure.title}, engine {engine}, seed {seed} ...")
    began_s = time.monotonic()
    verdict = Verdict(procedure.name, engine, seed, broken={"ended": [f"it did not end within {RUN_WITHIN_S:g} s"]})
    try:
        with anyio.move_on_after(RUN_WITHIN_S):
            async with open_world(servers, name, engine=engine, seed=seed) as world:
                verdict = await procedure.run(world, seed)
    except* (SluiceError, OSError) as group:
        verdict = Verdict(procedure.name, engine, seed, broken={"ended": [repr(group)]})
    _say(f"  {'holds' if verdict.holds else 'broke ' + ' '.join(verdict.broken)} after {time.monotonic() - began_s:.0f} s")
    return verdict


def run_name(procedure: str, engine: str, seed: int) -> str:
    """What a run's folder, topics and keys begin with."""
    return f"{procedure.lower()}-{engine.replace('_', '-')}-{seed}"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _show(folder: Path, verdicts: Sequence[Verdict], controls: Sequence[tuple[Control, Verdict]]) -> bool:
    """Print everything. Returns whether all is as it must be."""
    if verdicts:
        rig.print_table("Ours: every invariant must hold", report.COLUMNS, [report.row(one) for one in verdicts])
    for one in verdicts:
        if not one.holds:
            print(f"\n{one.procedure} with seed {one.seed} broke:", *report.sentences(one), sep="\n")
            print(f"  again: python -m bench.chaos {_again(folder, one)}")
    if controls:
        rows = [
            (control.engine, one.procedure, " or ".join(control.must_break), " ".join(sorted(one.broken)) or "nothing")
            for control, one in controls
        ]
        rig.print_table("Controls: each lacks a guard, and must be seen to break", ("", "run", "must break", "broke"), rows)
    blind = [control.engine for control, one in controls if not report.has_failed(control, one)]
    if blind:
        print(f"\nnot seen to break: {', '.join(blind)}")
    return all(one.holds for one in verdicts) and not blind


def _again(folder: Path, verdict: Verdict) -> str:
    """The arguments that run it again."""
    kept = folder / run_name(verdict.procedure, verdict.engine, verdict.seed) / SCHEDULE_FILE
    if kept.exists():
        return f"--schedule {kept} --seed {verdict.seed} (with the same --inputs, where it was given)"
    return f"--only {verdict.procedure} --seed {verdict.seed}"


def _put_away(folder: Path, *, well: bool) -> None:
    """Nothing is left of a run where all is well; ledgers, schedules and logs of any other are kept for a look."""
    for part in [folder] if well else [folder / "kafka", folder / "redis"]:
        shutil.rmtree(part, ignore_errors=True)
    if not well:
        _say(f"chaos: ledgers, schedules and logs of every run are in {folder}")


def command_line() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(prog="python -m bench.chaos", description=__doc__)
    parser.add_argument("--short", action="store_true", help="a few minutes: the procedures that catch most, and every control")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help=f"some of {', '.join([MIX, *PROCEDURES, CONTROLS_NAME])}")
    parser.add_argument("--schedule", help="the schedule of a mixed run, to carry it out again")
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=60)
    return parser


def main() -> int:
    """Read the command line, conduct, and tell."""
    options = command_line().parse_args()
    configure_logging("error")
    if missing := apache_kafka_missing():
        sys.exit(f"chaos: {missing}")
    try:
        plan = plan_of(options)
    except KeyError as error:
        sys.exit(f"chaos: no procedure {error}; there are: {', '.join([MIX, *PROCEDURES, CONTROLS_NAME])}")
    folder = Path(mkdtemp(prefix="sluice-chaos-"))
    verdicts, controls = anyio.run(conduct, folder, plan)
    well = _show(folder, verdicts, controls)
    _put_away(folder, well=well)
    print(json.dumps(report.summary(verdicts, controls)))
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
