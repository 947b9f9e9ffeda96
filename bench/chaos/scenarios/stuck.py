"""P8: one record takes many times the session. Others go on, its offset waits, the lag shows, and nobody leaves the group."""

from collections.abc import Iterable, Mapping
from typing import Final

from bench.chaos.basics import KEYS, conclude
from bench.chaos.inputs import Task, make_tasks
from bench.chaos.verdict import Verdict
from bench.chaos.world import World
from topics.catalogue import QUERIES

STUCK: Final = "stuck"
STUCK_MS: Final = 25_000  # eight sessions of these runs
OTHERS_WITHIN_S: Final = 20.0


async def stuck_record(world: World, seed: int, *, inputs: int = 240) -> Verdict:
    """P8: the slow record is first in its partition; everything else is published behind it."""
    await world.start_workers(3)
    await world.publish([Task(STUCK, STUCK, "write", work_ms=STUCK_MS)])
    await world.publish(make_tasks(seed, inputs, keys=KEYS, work_ms=(10, 300)))
    await world.until(inputs, within_s=OTHERS_WITHIN_S)
    finished, positions = set(world.look().finished), dict(world.look().positions)
    ends = await world.cluster.ends(world.catalogue.name(QUERIES))
    verdict = Verdict("P8", world.engine, seed)
    account = await conclude(world, verdict, "I1", "I2", "I3", "I4", "I5", "I6", "I8", "I9", within_s=60.0)
    slow = account.inputs[STUCK]
    verdict.add("I10", others_waited(account.inputs, finished))
    verdict.add("I4", not_held(slow.partition, slow.offset, positions=positions))
    verdict.add("lag", lag_hidden(slow.partition, positions=positions, ends=ends))
    verdict.add("vacuous", ["the slow record was done before the others"] if STUCK in finished else [])
    return verdict


def others_waited(inputs: Iterable[str], finished: set[str]) -> list[str]:
    """Others than the slow record that had not ended while it ran. Pure, as what follows."""
    waited = sorted(set(inputs) - finished - {STUCK})
    return [f"{len(waited)} others waited for one slow record, among them {waited[:3]}"] if waited else []


def not_held(partition: str, offset: int, *, positions: Mapping[str, int]) -> list[str]:
    """The group's position in the slow record's partition, where it is not the slow record."""
    position = positions.get(partition, 0)
    return [f"{partition} stands at {position}, and the slow record at {offset} still runs"] if position > offset else []


def lag_hidden(partition: str, *, positions: Mapping[str, int], ends: Mapping[str, int]) -> list[str]:
    """A lag that an operator cannot see, though a record runs."""
    lag = ends[partition] - positions.get(partition, 0)
    return [] if lag > 0 else [f"{partition} shows no lag while its first record runs"]
