"""P16: a hot key and a noisy tenant. Others are served about as they are when alone."""

from collections.abc import Iterable, Mapping
from typing import Final

from bench import rig
from bench.chaos.basics import conclude
from bench.chaos.facts import Published
from bench.chaos.inputs import Task
from bench.chaos.verdict import Verdict
from bench.chaos.world import World

QUIET_RATE_PER_S: Final = 15.0
WORK_MS: Final = 100
BURST: Final = 500
PRODUCTION_BUFFER: Final = 512  # a hot key with more in its lane than this holds up its partition, whoever else is in it
NS: Final = 1_000_000_000
# On a busy machine the same run is slower by as much now and then; the noise itself waits many times longer.
ALLOWED_TIMES: Final = 3.0
ALLOWED_MORE_S: Final = 1.0


async def hot_and_noisy(world: World, seed: int, *, quiet: int = 120) -> Verdict:
    """P16: the same quiet tenant alone, then beside a burst of another tenant half of whose records have one key."""
    world.settings["max_buffered_records"] = PRODUCTION_BUFFER
    await world.start_workers(2)
    await _serve(world, _quiet("alone", quiet), ())
    noise = [
        Task(f"noise{number}", "hot" if number % 2 else f"n{number}", "none", WORK_MS, tenant="noisy") for number in range(BURST)
    ]
    await _serve(world, _quiet("beside", quiet), noise)
    verdict = Verdict("P16", world.engine, seed)
    account = await conclude(world, verdict, "I1", "I2", "I4", "I6", "I10", within_s=120.0)
    waits = waits_s(account.of(Published), account.finished_ns)
    alone, beside = (
        rig.percentile([wait for name, wait in waits.items() if name.startswith(kind)], 95) for kind in ("alone", "beside")
    )
    noisy = rig.percentile([wait for name, wait in waits.items() if name.startswith("noise")], 95)
    verdict.add("fairness", unfair(alone_s=alone, beside_s=beside))
    verdict.figures |= {"p95_alone_s": round(alone, 2), "p95_beside_s": round(beside, 2), "p95_noisy_s": round(noisy, 2)}
    return verdict


async def _serve(world: World, tasks: list[Task], noise: Iterable[Task]) -> None:
    """The noise at once, the tasks at their pace, and wait for the tasks."""
    await world.publish(noise)
    before = len(world.look().finished)
    world.feed(tasks, rate_per_s=QUIET_RATE_PER_S)
    await world.until(before + len(tasks), within_s=60.0)


def _quiet(name: str, count: int) -> list[Task]:
    return [Task(f"{name}{number}", f"q{number % 40}", "none", WORK_MS, tenant="quiet") for number in range(count)]


def waits_s(published: Iterable[Published], finished_ns: Mapping[str, int]) -> dict[str, float]:
    """Event id -> seconds from its publication to its end. Pure, as what follows."""
    return {one.event_id: (finished_ns[one.event_id] - one.at_ns) / NS for one in published if one.event_id in finished_ns}


def unfair(*, alone_s: float, beside_s: float) -> list[str]:
    """A quiet tenant that a noisy one pushed aside."""
    allowed_s = alone_s * ALLOWED_TIMES + ALLOWED_MORE_S
    return [f"the quiet tenant's p95 went from {alone_s:.2f} s to {beside_s:.2f} s"] if beside_s > allowed_s else []
