"""Short disturbances that bring out one fault each, every time: they wait for the moment, and do not hope for it."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import anyio

from bench.chaos.basics import bounds_of
from bench.chaos.facts import Fact, Granted
from bench.chaos.inputs import Task, make_tasks
from bench.chaos.judge import judge
from bench.chaos.ledger import read
from bench.chaos.verdict import Verdict
from bench.chaos.world import LOOK_EVERY_S, World

KEYS: Final = 30
QUIET_S: Final = 10.0
REST_S: Final = 40.0  # for what is left; what was lost is never finished
AT_WORK: Final = 4


async def killed_in_a_burst(world: World, seed: int, *, inputs: int = 150, longest_ms: int = 1500, fails: float = 0.1) -> Verdict:
    """P1 in small: all inputs are there at once, long ones before short ones; a worker is killed twice in the middle of it."""
    await world.start_workers(2)
    await world.publish(make_tasks(seed, inputs, keys=KEYS, work_ms=(50, longest_ms), fails=fails))
    for part in (1, 2):
        await world.until(inputs * part / 4, within_s=20.0)
        if victim := await worker_at_work(world, at_least=1):
            await world.kill(victim)
            await world.start_worker(victim)
    await world.quiesce(within_s=REST_S, quiet_s=QUIET_S)
    verdict = Verdict("P1", world.engine, seed)
    return judge(await world.account(), verdict, bounds_of(world), "I1", "I2", "I3", "I4", "I6")


async def killed_among_effects(world: World, seed: int, *, inputs: int = 600) -> Verdict:
    """P1 in small: short effects that cannot be repeated, and workers killed while many are between the effect and its end."""
    await world.start_workers(2)
    await world.publish([Task(f"q{number}", f"k{number % 200}", "irreversible", work_ms=20) for number in range(inputs)])
    for part in range(1, 5):
        await world.until(inputs * part / 6, within_s=20.0)
        if victim := await worker_at_work(world, at_least=AT_WORK):
            await world.kill(victim)
            await world.start_worker(victim)
    await world.quiesce(within_s=REST_S, quiet_s=QUIET_S)
    verdict = Verdict("P1", world.engine, seed)
    return judge(await world.account(), verdict, bounds_of(world), "I1", "I2")


async def woken_zombie(world: World, seed: int, *, inputs: int = 24) -> Verdict:
    """P2 in small: a worker freezes before its effects begin, and wakes when others hold its threads."""
    await world.start_workers(2)
    await world.publish([Task(f"q{number}", f"k{number}", "write", work_ms=6000) for number in range(inputs)])
    victim = await worker_at_work(world, at_least=AT_WORK) or "w1"
    incarnation = world.members[victim].incarnation
    await _until_facts(world, lambda facts: len(granted_to(facts, incarnation)) >= AT_WORK)
    world.freeze(victim)
    await _until_facts(world, lambda facts: len(overtaken(facts, incarnation)) >= AT_WORK)
    world.thaw(victim)
    await world.quiesce(within_s=REST_S, quiet_s=QUIET_S)
    verdict = Verdict("P2", world.engine, seed)
    return judge(await world.account(), verdict, bounds_of(world), "I1", "I2", "I7")


async def poisoned(world: World, seed: int, *, inputs: int = 60) -> Verdict:
    """P10 in small: one record in each partition fails whenever it runs."""
    await world.start_workers(2)
    poison = [Task(f"p{number}", f"poison{number}", "none", does="raise") for number in range(KEYS)]
    await world.publish(poison[:10] + make_tasks(seed, inputs, keys=KEYS, work_ms=(5, 50), fails=0.0))
    await world.quiesce(within_s=30.0, quiet_s=QUIET_S)
    verdict = Verdict("P10", world.engine, seed)
    return judge(await world.account(), verdict, bounds_of(world, frozen_s=15.0), "I1", "I4", "I10")


async def worker_at_work(world: World, *, at_least: int, within_s: float = 15.0) -> str | None:
    """The worker that runs most handlers, once that are so many; None when nobody comes to that, as an engine that has lost all."""
    with anyio.move_on_after(within_s):
        while True:
            running = world.look().running
            busy = {name: len(running[member.incarnation]) for name, member in world.members.items()}
            if (most := max(busy, key=busy.__getitem__)) and busy[most] >= at_least:
                return most
            await anyio.sleep(LOOK_EVERY_S)
    return None


async def _until_facts(world: World, condition: Callable[[list[Fact]], bool]) -> None:
    """Until the ledger says so. A moment that does not come leaves nothing to show, and fails the run."""
    with anyio.fail_after(30.0):
        while not condition(read(world.ledger_dir)):  # noqa: ASYNC110 -- what is awaited happens in files
            await anyio.sleep(LOOK_EVERY_S)


def granted_to(facts: Iterable[Fact], who: str) -> dict[str, int]:
    """Event id -> the fence under which a worker was granted its thread. Pure."""
    return {fact.event_id: fact.fence for fact in facts if isinstance(fact, Granted) and fact.who == who}


def overtaken(facts: Sequence[Fact], who: str) -> set[str]:
    """Events whose thread a worker was granted, and somebody else after it. Pure."""
    fences = granted_to(facts, who)
    return {fact.event_id for fact in facts if isinstance(fact, Granted) and fact.fence > fences.get(fact.event_id, fact.fence)}
