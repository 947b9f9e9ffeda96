"""The mixed run: kills, and everything else between them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench.chaos.basics import KEYS, WORK_MS, conclude
from bench.chaos.carry_out import carry_out
from bench.chaos.inputs import make_tasks
from bench.chaos.invariants import not_vacuous
from bench.chaos.schedule import Disturbance, mixed, to_text
from bench.chaos.verdict import Verdict
from bench.chaos.world import World

MIX: Final = "MIX"
SCHEDULE_FILE: Final = "schedule.jsonl"


@dataclass(frozen=True, slots=True)
class Mix:
    """The size of a mixed run. A schedule that is given is carried out as it is."""

    inputs: int = 10_000
    kills: int = 60
    others: int = 18
    schedule: Sequence[Disturbance] = ()

    async def run(self, world: World, seed: int) -> Verdict:
        """Kills and everything else, mixed, against all invariants."""
        schedule = self.schedule or mixed(seed, kills=self.kills, others=self.others)
        (world.folder / SCHEDULE_FILE).write_text(to_text(schedule))
        await world.start_workers(3)
        await carry_out(world, schedule, make_tasks(seed, self.inputs, keys=KEYS, work_ms=WORK_MS))
        verdict = Verdict(MIX, world.engine, seed)
        account = await conclude(world, verdict, within_s=300.0)
        planned = sum(one.kind == "kill" for one in schedule)
        verdict.add("vacuous", not_vacuous(account, min_kills=planned * 9 // 10, min_shared_keys=KEYS // 2))
        return verdict
