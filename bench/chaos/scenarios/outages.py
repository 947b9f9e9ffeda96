"""P13: the outside world is out, then busy. Nothing is given up, no attempt is spent, and what waited is caught up with."""

from typing import Final

import anyio

from bench.chaos.basics import KEYS, conclude
from bench.chaos.facts import Ended, Fact
from bench.chaos.inputs import make_tasks
from bench.chaos.ledger import now_ns
from bench.chaos.verdict import Verdict
from bench.chaos.world import World

OUTAGE_S: Final = 12.0  # for the 60 s of a real one
STORM_S: Final = 20.0
RETRY_AFTER_S: Final = 1.0  # the storm lasts for more retries than a record has attempts
NS: Final = 1_000_000_000


async def outage_and_storm(world: World, seed: int, *, inputs: int = 240) -> Verdict:
    """P13: an outage, then answers that say to come back later, both under load."""
    await world.start_workers(2)
    tasks = make_tasks(seed, inputs, keys=KEYS, work_ms=(10, 200), fails=0.0)
    world.feed(tasks, rate_per_s=inputs / (OUTAGE_S + STORM_S))
    async with world.disturbing("outage", "outside"):
        await world.outside.set_mood("outage")
        await anyio.sleep(OUTAGE_S)
    async with world.disturbing("storm", "outside"):
        await world.outside.set_mood("busy", retry_after_s=RETRY_AFTER_S)
        await anyio.sleep(STORM_S)
    await world.outside.set_mood("ok")
    mended_ns = now_ns()
    verdict = Verdict("P13", world.engine, seed)
    account = await conclude(world, verdict, "I1", "I2", "I4", "I5", "I6", "I8", within_s=120.0)
    verdict.add(
        "I15",
        [f"{len(account.dead)} records were given up for an outage, among them {sorted(account.dead)[:3]}"] if account.dead else [],
    )
    verdict.add("vacuous", [] if refused(account.facts) >= inputs // 10 else ["hardly a call met the outage"])
    verdict.figures |= {"refused_calls": refused(account.facts), "catch_up_s": round(catch_up_s(account.finished_ns, mended_ns), 1)}
    return verdict


def refused(facts: list[Fact]) -> int:
    """Handlers that ended because the world was out or busy. Pure, as what follows."""
    return sum(1 for fact in facts if isinstance(fact, Ended) and fact.outcome in {"OutageError", "RateLimitedError"})


def catch_up_s(finished_ns: dict[str, int], mended_ns: int) -> float:
    """From the end of the outage to the end of the last record."""
    return max(max(finished_ns.values(), default=mended_ns) - mended_ns, 0) / NS
