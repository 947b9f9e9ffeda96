"""P11: while no dead letter can be written, offsets wait; when it is possible again, each record has exactly one."""

from typing import Final

import anyio

from bench.chaos.basics import KEYS, conclude
from bench.chaos.inputs import Task, make_tasks, record_of
from bench.chaos.scenarios.broker_changes import allow_writing, deny_writing, set_topic
from bench.chaos.scenarios.letters import dead_letters_of, not_exactly_one
from bench.chaos.spec import OURS
from bench.chaos.verdict import Verdict
from bench.chaos.world import LOOK_EVERY_S, World
from topics.catalogue import DEAD_LETTERS

REFUSED: Final = b"dead_letter_not_acknowledged"
SMALL_BYTES: Final = 700  # less than any dead letter
USUAL_BYTES: Final = 1_048_588
HELD_S: Final = 5.0
SEEN_WITHIN_S: Final = 45.0


async def letterless(world: World, seed: int, *, doomed: int = 8, inputs: int = 120) -> Verdict:
    """P11: the topic of dead letters is missing, and workers die meanwhile; then it is denied; then it takes nothing large."""
    topic = world.catalogue.name(DEAD_LETTERS)
    await world.start_workers(3)
    sent = await missing(world, topic, make_tasks(seed, inputs, keys=KEYS, work_ms=(10, 200), fails=0.0), doomed)
    if world.engine == OURS:
        sent += await denied(world, topic, doomed)
        sent += await too_small(world, topic, doomed)
    verdict = Verdict("P11", world.engine, seed)
    await conclude(world, verdict, "I1", "I2", "I4", "I5", "I6", within_s=120.0)
    verdict.add("I13", not_exactly_one([record_of(one, catalogue=world.catalogue) for one in sent], await dead_letters_of(world)))
    verdict.figures["doomed"] = len(sent)
    return verdict


async def missing(world: World, topic: str, good: list[Task], doomed: int) -> list[Task]:
    """No topic. Everybody dies meanwhile, so that nothing that somebody still wanted to write is left."""
    await world.cluster.delete([topic])
    sent = _doomed("missing", doomed)
    await world.publish([*sent, *good])
    await world.until(len(good), within_s=20.0)
    await anyio.sleep(HELD_S)
    for name in list(world.members):
        await world.kill(name)
    await world.cluster.create({topic: DEAD_LETTERS.partitions})
    await world.start_workers(3)
    return sent


async def denied(world: World, topic: str, doomed: int) -> list[Task]:
    """No right to write."""
    await deny_writing(world.servers.kafka, topic, logs=world.folder / "logs")
    sent = await _publish_and_see_refused(world, "denied", doomed)
    await allow_writing(world.servers.kafka, topic, logs=world.folder / "logs")
    return sent


async def too_small(world: World, topic: str, doomed: int) -> list[Task]:
    """The topic takes no record as large as these."""
    await set_topic(world.servers.kafka, topic, max_message_bytes=str(SMALL_BYTES))
    sent = await _publish_and_see_refused(world, "large", doomed)
    await set_topic(world.servers.kafka, topic, max_message_bytes=str(USUAL_BYTES))
    return sent


async def _publish_and_see_refused(world: World, name: str, doomed: int) -> list[Task]:
    before = _refusals(world)
    sent = _doomed(name, doomed)
    await world.publish(sent)
    with anyio.fail_after(SEEN_WITHIN_S):
        while _refusals(world) == before:  # noqa: ASYNC110 -- what is awaited happens in files
            await anyio.sleep(LOOK_EVERY_S)
    await anyio.sleep(HELD_S)
    return sent


def _refusals(world: World) -> int:
    return sum(path.read_bytes().count(REFUSED) for path in (world.folder / "logs").glob("w*.log"))


def _doomed(name: str, count: int) -> list[Task]:
    return [Task(f"{name}{number}", f"{name}{number}", "none", work_ms=10, does="reject") for number in range(count)]
