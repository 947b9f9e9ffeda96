"""Procedures that disturb servers and the network: P3, P4, P5."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from bench.chaos.account import Run
from bench.chaos.basics import KEYS, WORK_MS, conclude
from bench.chaos.carry_out import carry_out
from bench.chaos.inputs import make_tasks
from bench.chaos.schedule import Disturbance, Kind
from bench.chaos.verdict import Procedure, Verdict
from bench.chaos.world import World
from infra.redis.client import connect


def _weathers(*kinds: tuple[Kind, float]) -> list[Disturbance]:
    """One after another, with 4 s of peace between them."""
    at_s, schedule = 0.0, list[Disturbance]()
    for kind, for_s in kinds:
        at_s += 4.0
        schedule.append(Disturbance(at_s, kind, for_s=for_s))
        at_s += for_s
    return schedule


async def _through(world: World, seed: int, name: str, schedule: list[Disturbance], *invariants: str) -> Verdict:
    await world.start_workers(3)
    await carry_out(world, schedule, make_tasks(seed, len(schedule) * 100, keys=KEYS, work_ms=WORK_MS))
    verdict = Verdict(name, world.engine, seed)
    await conclude(world, verdict, *invariants)
    return verdict


async def lose_the_broker(world: World, seed: int) -> Verdict:
    """P3: the broker is killed and comes back, twice, and is frozen once."""
    schedule = _weathers(("broker_kill", 0.0), ("broker_freeze", 8.0), ("broker_kill", 0.0))
    return await _through(world, seed, "P3", schedule, "I1", "I2", "I4", "I5", "I6", "I7", "I10")


async def spoil_the_network(world: World, seed: int) -> Verdict:
    """P4: between workers and broker: cut, black hole, resets, latency, a trickle."""
    kinds: tuple[tuple[Kind, float], ...] = (
        ("kafka_cut", 3.0),
        ("kafka_reset", 0.0),
        ("kafka_black_hole", 5.0),
        ("kafka_reset", 0.0),
        ("kafka_latency", 6.0),
        ("kafka_trickle", 6.0),
    )
    return await _through(world, seed, "P4", _weathers(*kinds), "I1", "I2", "I4", "I5", "I6", "I7", "I9", "I10")


async def lose_redis(world: World, seed: int) -> Verdict:
    """P5: Redis is killed and comes back from its file, is frozen, cut off, silent."""
    kinds: tuple[tuple[Kind, float], ...] = (
        ("redis_kill", 0.0),
        ("redis_cut", 3.0),
        ("redis_freeze", 6.0),
        ("redis_black_hole", 4.0),
        ("redis_kill", 0.0),
    )
    return await _through(world, seed, "P5", _weathers(*kinds), "I1", "I2", "I4", "I5", "I6", "I7", "I10")


async def empty_redis(world: World, seed: int) -> Verdict:
    """P5 again: FLUSHALL when all is done, and FLUSHALL at work. What is committed stays done, and idempotent effects stay single.

    Redis is where claims and the ledger of effects live: an IRREVERSIBLE effect that runs while they vanish may run twice, so
    none runs here. Fences go on growing: they are never below the server's clock.
    """
    await world.start_workers(3)
    tasks = [replace(task, effect="write") for task in make_tasks(seed, 300, keys=KEYS, work_ms=WORK_MS)]
    await world.publish(tasks[:100])
    await world.quiesce(within_s=60.0)
    await _flush(world)
    await world.publish(tasks[100:])
    await world.until(200, within_s=60.0)
    await _flush(world)
    verdict = Verdict("P5-flush", world.engine, seed)
    account = await conclude(world, verdict, "I1", "I2", "I4", "I5", "I6", "I10")
    early = {task.event_id for task in tasks[:100]}
    verdict.add("I3", [f"{one} ran again" for one, runs in account.runs_by_event.items() if one in early and _runs_well(runs) > 1])
    return verdict


async def _flush(world: World) -> None:
    async with world.disturbing("redis_flush", "redis"):
        client: Any = connect(world.servers.redis.url, timeout_s=5.0)
        await client.flushall()
        await client.aclose()


def _runs_well(runs: Sequence[Run]) -> int:
    return sum(run.is_good for run in runs)


PROCEDURES: Final = (
    Procedure("P3", "broker killed, frozen", lose_the_broker),
    Procedure("P4", "bad network to the broker", spoil_the_network),
    Procedure("P5", "Redis killed, frozen, cut off", lose_redis),
    Procedure("P5-flush", "Redis emptied", empty_redis),
)
