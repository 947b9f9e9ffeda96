"""Procedures that disturb processes and the network: P1 to P5, P7, P9."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import anyio

from bench.chaos.inputs import make_tasks
from bench.chaos.invariants import Bounds, not_vacuous
from bench.chaos.judge import judge
from bench.chaos.schedule import Disturbance, kill_loop
from bench.chaos.spec import OURS
from bench.chaos.verdict import Procedure, Verdict
from bench.chaos.world import World

KEYS: Final = 40


def bounds_of(world: World, **changed: Any) -> Bounds:
    """What a run of this engine allows. Rivals publish no answers of ours."""
    return replace(Bounds(answers=world.engine == OURS), **changed)


async def kill_while_working(world: World, seed: int, *, inputs: int = 600, kills: int = 8) -> Verdict:
    """P1: three workers, one killed every few seconds and started again, while inputs come."""
    schedule = kill_loop(seed, kills=kills)
    await world.start_workers(3)
    world.feed(make_tasks(seed, inputs, keys=KEYS, work_ms=(50, 400)), rate_per_s=inputs / (schedule[-1].at_s + 2.0))
    await carry_out(world, schedule)
    await world.quiesce(within_s=120.0)
    account = await world.account()
    verdict = judge(account, Verdict("P1", world.engine, seed), bounds_of(world), "I1", "I2", "I3", "I4", "I5", "I6", "I7")
    verdict.add("vacuous", not_vacuous(account, min_kills=kills * 3 // 4, min_shared_keys=KEYS // 2))
    return verdict


async def carry_out(world: World, schedule: Sequence[Disturbance]) -> None:
    """Do what a schedule says, when it says it, or as soon as that is possible."""
    began_s = anyio.current_time()
    for one in schedule:
        await anyio.sleep_until(began_s + one.at_s)
        await world.revive_dead()
        if one.kind == "kill":
            await world.kill_at_work(one.target)
            await world.start_worker(one.target)


PROCEDURES: Final = (Procedure("P1", "SIGKILL loop", kill_while_working, short=True),)
