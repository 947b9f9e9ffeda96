"""P14: a record kills its process whenever it runs. It is found out and kept; whoever ran beside it is not blamed, and is done."""

from collections.abc import Sequence
from typing import Final

from bench.chaos.basics import KEYS, bounds_of
from bench.chaos.facts import Buried, Disturbed, Fact, Published
from bench.chaos.inputs import Task, make_tasks
from bench.chaos.judge import judge
from bench.chaos.verdict import Verdict
from bench.chaos.world import World

CRASHER: Final = "crasher"
REASON: Final = "crash_loop"
CRASHES: Final = 5


async def crash_loop(world: World, seed: int, *, inputs: int = 150) -> Verdict:
    """P14: two workers, one record that kills, and others beside it whose work takes longer than it takes to die."""
    await world.start_workers(2)
    others = make_tasks(seed, inputs, keys=KEYS, work_ms=(100, 3000), fails=0.0)
    await world.publish([*others[: inputs // 2], Task(CRASHER, CRASHER, "none", work_ms=400, does="crash"), *others[inputs // 2 :]])
    is_quiet = await world.quiesce(within_s=240.0, quiet_s=30.0)
    verdict = Verdict("P14", world.engine, seed)
    account = await world.account()
    judge(account, verdict, bounds_of(world), "I1", "I2", "I4", "I5", "I6", "I7", "I8")
    verdict.add("P14", wrongly_blamed(account.facts))
    verdict.add("I10", [] if is_quiet else [f"{world.look().unfinished} records were not finished"])
    crashes = sum(1 for one in account.of(Disturbed) if one.kind == "died")
    verdict.add("P14", [f"{crashes} workers died of one record, {CRASHES} are enough"] if crashes > CRASHES + 1 else [])
    verdict.add("vacuous", [] if crashes >= CRASHES else [f"only {crashes} workers died"])
    verdict.figures["crashes"] = crashes
    return verdict


def wrongly_blamed(facts: Sequence[Fact]) -> list[str]:
    """The killer without its dead letter, and others with one. Pure."""
    places = {(fact.partition, fact.offset): fact.event_id for fact in facts if isinstance(fact, Published)}
    blamed = {places[fact.partition, fact.offset]: fact.reason for fact in facts if isinstance(fact, Buried)}
    broken = [f"{name} was given up as {why}, for dying beside it" for name, why in sorted(blamed.items()) if name != CRASHER]
    return broken if blamed.get(CRASHER) == REASON else [*broken, "the record that kills was not found out"]
