"""P5 and P13 for the limit of a model that all workers share: no window is above it, whoever is killed and wherever Redis is.

A window is six seconds, for the sixty of a provider. The part of it that is left unused is wider for that, and still shorter in
seconds than what a minute leaves: calls arrive later than they were sent by as much as ever.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import anyio

from bench.chaos.basics import bounds_of, conclude
from bench.chaos.facts import Called
from bench.chaos.inputs import Task, make_tasks
from bench.chaos.invariants import not_vacuous
from bench.chaos.judge import judge
from bench.chaos.verdict import Verdict
from bench.chaos.world import World

NS: Final = 1_000_000_000
LIMIT: Final = 120
WINDOW_S: Final = 6.0
ALLOWED: Final[dict[str, Any]] = {"limit_requests": LIMIT, "limit_window_s": WINDOW_S, "limit_margin": 0.15}
SLOTS: Final = 5  # of a worker; together they wait for about as many calls as the limit lets through in a second
NEAR: Final = 0.7  # of the limit: a run that stays further below it shows nothing
KEYS: Final = 30
CALLS: Final = 3
AWAY_S: Final = 3.0  # as long as a lease: who is at work goes on with its own share of the limit


async def killed_at_the_limit(world: World, seed: int, *, inputs: int = 80) -> Verdict:
    """P5-limit: three workers use up the limit, the busiest is killed three times, and Redis dies twice, once for a while."""
    await _work(world, seed, inputs, slots=SLOTS)
    for number, away_s in enumerate((0.0, AWAY_S, 0.0), start=1):
        await world.until(inputs * number / 5, within_s=30.0)
        await world.start_worker(await world.kill_busiest())
        if number > 1:
            await _lose_redis(world, away_s)
    verdict = Verdict("P5-limit", world.engine, seed)
    account = await conclude(world, verdict, "I1", "I2", "I4", "I5", "I6", "I8", within_s=60.0)
    calls = account.of(Called)
    verdict.add("I16", above_the_limit(calls))
    verdict.add("vacuous", [*not_vacuous(account, min_kills=2, min_shared_keys=KEYS // 2), *far_below_the_limit(calls)])
    refused = sum(one.refused for one in calls)
    verdict.figures |= {
        "model_calls": len(calls),
        "model_calls_refused": refused,
        "model_calls_most": f"{most_in_a_window(calls)} of {LIMIT}",
    }
    return verdict


async def asked_in_a_burst(world: World, seed: int, *, inputs: int = 80) -> Verdict:
    """P5-limit in small, and nobody is disturbed: all inputs are there at once."""
    await _work(world, seed, inputs, slots=KEYS)
    await world.until(inputs, within_s=20.0)
    verdict = Verdict("P5-limit", world.engine, seed)
    account = await world.account()
    verdict.add("I16", above_the_limit(account.of(Called)))
    return judge(account, verdict, bounds_of(world), "I2")


async def _work(world: World, seed: int, inputs: int, *, slots: int) -> None:
    world.settings |= {**ALLOWED, "slots": slots}
    await world.outside.limit_model(LIMIT, window_s=WINDOW_S)
    await world.start_workers(3)
    await world.publish(_asking(make_tasks(seed, inputs, keys=KEYS, work_ms=(10, 100))))


def _asking(tasks: Sequence[Task]) -> list[Task]:
    return [replace(task, calls=CALLS) for task in tasks]


async def _lose_redis(world: World, away_s: float) -> None:
    server = world.servers.redis.server
    async with world.disturbing("redis_kill", "redis"):
        await server.kill()
        await anyio.sleep(away_s)
        await world.restart_server(server)


def most_in_a_window(calls: Sequence[Called]) -> int:
    """The most calls that any window of the limit's length held, refused ones too. Pure, as what follows."""
    moments = sorted(one.at_ns for one in calls)
    most = first = 0
    for number, moment in enumerate(moments):
        while moments[first] <= moment - WINDOW_S * NS:
            first += 1
        most = max(most, number - first + 1)
    return most


def above_the_limit(calls: Sequence[Called]) -> list[str]:
    """I16: the model was called more often than its limit allows, or said so itself."""
    most, refused = most_in_a_window(calls), sum(one.refused for one in calls)
    broken = [f"{most} calls were in one window, {LIMIT} are allowed"] if most > LIMIT else []
    return [*broken, f"{refused} calls got a 429"] if refused else broken


def far_below_the_limit(calls: Sequence[Called]) -> list[str]:
    """A run that never came near the limit."""
    most = most_in_a_window(calls)
    return [f"no window had more than {most} calls, of {LIMIT} that are allowed"] if most < LIMIT * NEAR else []
