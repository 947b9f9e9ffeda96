"""Procedures that disturb worker processes: P1, P2, P7, P9."""

import random
from typing import Final

import anyio

from bench.chaos.account import Account
from bench.chaos.basics import KEYS, WORK_MS, conclude
from bench.chaos.carry_out import carry_out
from bench.chaos.facts import Disturbed, Ended
from bench.chaos.inputs import make_tasks
from bench.chaos.invariants import kills as killed
from bench.chaos.invariants import not_vacuous
from bench.chaos.schedule import Disturbance, kill_loop
from bench.chaos.verdict import Procedure, Verdict
from bench.chaos.world import World
from infra.settings import Settings

TAKEOVER_S: Final = 15.0
PORTION: Final = 100
PRODUCTION: Final = {
    "session_timeout_s": 10.0,
    **{name: Settings.model_fields[name].default for name in ("lease_s", "revoke_drain_s", "drain_s")},
}


async def kill_while_working(world: World, seed: int, *, kills: int = 8) -> Verdict:
    """P1: three workers; one is killed every few seconds, and started again."""
    await world.start_workers(3)
    tasks = make_tasks(seed, kills * 80, keys=KEYS, work_ms=WORK_MS)
    await carry_out(world, kill_loop(seed, kills=kills, every_s=(1.0, 4.0)), tasks)
    verdict = Verdict("P1", world.engine, seed)
    account = await conclude(world, verdict, "I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8")
    verdict.add("vacuous", not_vacuous(account, min_kills=kills * 3 // 4, min_shared_keys=KEYS // 2))
    return verdict


async def kill_in_production(world: World, seed: int, *, kills: int = 8) -> Verdict:
    """P1 again, with the timeouts of production; each takeover ends before the next kill, and is bounded by 15 s."""
    world.settings |= PRODUCTION
    await world.start_workers(3)
    draw, tasks = random.Random(seed), make_tasks(seed, kills * PORTION, keys=KEYS, work_ms=WORK_MS)
    for number in range(kills):
        world.feed(tasks[number * PORTION : (number + 1) * PORTION], rate_per_s=PORTION / 2)
        name = f"w{draw.randint(1, 3)}"
        await world.kill_at_work(name)
        await world.start_worker(name)
        await world.until((number + 1) * PORTION, within_s=60.0)
    verdict = Verdict("P1-production", world.engine, seed)
    account = await conclude(world, verdict, "I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8")
    verdict.figures["production_takeovers_s"] = verdict.figures.pop("takeovers_s")
    slow = [one for one in killed(account) if one.takeover_s is not None and one.takeover_s > TAKEOVER_S]
    at_work = [one for one in killed(account) if one.in_flight]
    verdict.add("vacuous", [] if len(at_work) >= kills // 2 else [f"only {len(at_work)} kills hit a worker at work"])
    verdict.add("takeover", [f"what {one.who} left was taken over after {one.takeover_s:.1f} s" for one in slow])
    return verdict


async def freeze_past_the_session(world: World, seed: int, *, freezes: int = 4) -> Verdict:
    """P2: a worker is stopped by SIGSTOP at work until others have its partitions and threads, then goes on."""
    draw = random.Random(seed)
    await world.start_workers(3)
    schedule = [Disturbance(3.0 + 9.0 * number, "freeze", f"w{draw.randint(1, 3)}", 6.0) for number in range(freezes)]
    await carry_out(world, schedule, make_tasks(seed, freezes * 100, keys=KEYS, work_ms=WORK_MS))
    verdict = Verdict("P2", world.engine, seed)
    account = await conclude(world, verdict, "I1", "I2", "I4", "I5", "I6", "I7")
    zombies = _zombie_handlers(account)
    verdict.figures["zombie_handlers"] = zombies
    verdict.add("vacuous", [] if zombies else ["no handler was running when its worker froze"])
    return verdict


def _zombie_handlers(account: Account) -> int:
    """Handlers that went on after their worker had been frozen."""
    frozen = [one for one in account.of(Disturbed) if one.kind == "freeze" and not one.ends]
    return sum(len(account.in_flight(one.target, one.at_ns)) for one in frozen)


async def restart_in_turn(world: World, seed: int) -> Verdict:
    """P7: every worker is stopped by SIGTERM and started again, in turn, twice, under load: nothing runs twice."""
    world.settings |= PRODUCTION  # nobody dies here, so nobody waits for a session or a lease to end
    await world.start_workers(3)
    schedule = [Disturbance(2.0 + 3.0 * number, "stop", f"w{number % 3 + 1}") for number in range(6)]
    await carry_out(world, schedule, make_tasks(seed, len(schedule) * 80, keys=KEYS, work_ms=WORK_MS, fails=0.0))
    verdict = Verdict("P7", world.engine, seed)
    account = await conclude(world, verdict, "I1", "I2", "I3", "I4", "I5", "I6", "I7", "I8", "I9", "I10", "I11")
    at_work = [one for one in account.of(Disturbed) if one.kind == "stop" and account.in_flight(one.target, one.at_ns)]
    verdict.add("vacuous", [] if len(at_work) > len(schedule) // 2 else [f"only {len(at_work)} were stopped at work"])
    again = [event_id for event_id, runs in account.runs_by_event.items() if len(runs) > 1]
    verdict.add("I11", [f"{event_id} ran more than once" for event_id in again])
    return verdict


async def join_and_leave(world: World, seed: int, *, turns: int = 20) -> Verdict:
    """P9: extra workers join and leave every 0.5 to 1.5 s."""
    world.settings |= PRODUCTION
    draw = random.Random(seed)
    await world.start_workers(2)
    world.feed(make_tasks(seed, 600, keys=KEYS, work_ms=WORK_MS), rate_per_s=20.0)
    async with anyio.create_task_group() as leaving:
        for number in range(turns):
            await world.start_worker(f"x{number}")
            await anyio.sleep(draw.uniform(0.5, 1.5))
            if number >= 2:
                leaving.start_soon(world.stop, f"x{number - 2}")
        for number in range(turns - 2, turns):
            leaving.start_soon(world.stop, f"x{number}")
    verdict = Verdict("P9", world.engine, seed)
    account = await conclude(world, verdict, "I1", "I2", "I3", "I4", "I5", "I6", "I7", "I10")
    verdict.figures["cancelled"] = sum(one.outcome == "cancelled" for one in account.of(Ended))
    return verdict


PROCEDURES: Final = (
    Procedure("P1", "SIGKILL loop", kill_while_working, short=True),
    Procedure("P1-production", "SIGKILL with production timeouts", kill_in_production),
    Procedure("P2", "SIGSTOP past the session", freeze_past_the_session, short=True),
    Procedure("P7", "rolling restarts", restart_in_turn, short=True),
    Procedure("P9", "joins and leaves", join_and_leave),
)
