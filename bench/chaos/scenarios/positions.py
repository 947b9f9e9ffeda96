"""P12: what can happen to a group's positions. Workers go on, or stop and say why until somebody sets where; nothing is skipped."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

import anyio
from aiokafka import TopicPartition
from aiokafka.admin import NewPartitions, RecordsToDelete

from bench.chaos.basics import KEYS, bounds_of
from bench.chaos.facts import Published
from bench.chaos.feed import feeding
from bench.chaos.inputs import Task, make_tasks, record_of
from bench.chaos.judge import judge
from bench.chaos.scenarios.broker_changes import administration, run_tool
from bench.chaos.scenarios.operators import Operator
from bench.chaos.verdict import Verdict
from bench.chaos.world import LOOK_EVERY_S, World
from infra.kafka.publisher import raw_producer
from topics.catalogue import QUERIES

MORE_PARTITIONS: Final = 9
HALTED_WITHIN_S: Final = 45.0
LOST: Final = b" is gone: "  # how the sentence of a worker that halts says it
OUT_OF_RANGE: Final = b"Nothing was skipped"

Change = Callable[[World, str], Awaitable[None]]


async def positions(world: World, seed: int, *, inputs: int = 60) -> Verdict:
    """P12: partitions are added; records go before they are read; the group's positions go; the topic is another one."""
    topic, operator = world.catalogue.name(QUERIES), Operator(world)
    verdict = Verdict("P12", world.engine, seed)
    await world.start_workers(2)
    await _serve(world, verdict, _round("first", seed, inputs))
    await add_partitions(world, topic)
    await _serve(world, verdict, _round("more partitions", seed, inputs))
    used = {one.partition for one in (await world.account()).of(Published)}
    verdict.add("vacuous", [] if f"{topic}/{MORE_PARTITIONS - 1}" in used else ["no record was in an added partition"])
    changes: dict[str, tuple[Change, tuple[bytes, ...]]] = {
        "deleted records": (delete_records, (OUT_OF_RANGE,)),
        "deleted positions": (delete_positions, (LOST,)),
        "another topic": (make_topic_anew, (LOST, OUT_OF_RANGE)),
    }
    for name, (change, words) in changes.items():
        for worker in list(world.members):
            await world.stop(worker)
        await change(world, topic)
        verdict.add("P12", await _does_not_halt(world, name, words))
        told = await operator.run("offsets", "set", "--group", world.group, "--to", "earliest", "--because", name)
        verdict.add("P12", [] if told.get("changes") else [f"after {name} no position could be set: {told}"])
        await world.start_workers(2)
        await _serve(world, verdict, _round(name, seed, inputs))
    # Positions are set back here, and a topic's offsets begin anew: I4 and I5 speak of what nobody set.
    return judge(await world.account(), verdict, bounds_of(world), "I1", "I2", "I3")


def _round(name: str, seed: int, count: int) -> list[Task]:
    """Tasks of their own for each part."""
    return [replace(task, event_id=f"{name} {task.event_id}") for task in make_tasks(seed, count, keys=KEYS, work_ms=(10, 100))]


async def _serve(world: World, verdict: Verdict, tasks: list[Task]) -> None:
    """Publish with a producer that knows the topic as it is now, and wait until everything is done."""
    async with feeding(world.servers.kafka, ledger=world.ledger, catalogue=world.catalogue) as feeder:
        await feeder.feed(feeder.expect(tasks))
    if not await world.quiesce(within_s=90.0, quiet_s=45.0):
        verdict.add("I10", [f"after {tasks[0].event_id} {world.look().unfinished} inputs were unfinished or uncommitted"])


async def _does_not_halt(world: World, name: str, words: tuple[bytes, ...]) -> list[str]:
    """Start a worker that must stop and say why; let no platform start it again."""
    member = await world.start_worker("w1")
    log = member.server.spec.log_path
    with anyio.move_on_after(HALTED_WITHIN_S):
        while not any(one in log.read_bytes() for one in words):  # noqa: ASYNC110 -- what is awaited happens in files
            await anyio.sleep(LOOK_EVERY_S)
    await world.kill("w1")
    return [] if any(one in log.read_bytes() for one in words) else [f"after {name} no worker stopped and said why"]


async def add_partitions(world: World, topic: str) -> None:
    """Raise the partitions of a topic while it is read."""
    async with administration(world.servers.kafka) as admin:
        await admin.create_partitions({topic: NewPartitions(MORE_PARTITIONS)})


async def delete_records(world: World, topic: str) -> None:
    """Let retention take records that nobody has read: they are in no account, since nobody can ask for them any more."""
    gone = make_tasks(0, MORE_PARTITIONS * 5, keys=KEYS, work_ms=(1, 2))
    async with raw_producer(world.servers.kafka) as producer:
        for task in gone:
            await producer.write(record_of(replace(task, event_id=f"gone {task.event_id}"), catalogue=world.catalogue))
    ends = await world.cluster.ends(topic)
    async with administration(world.servers.kafka) as admin:
        await admin.delete_records({_partition(name): RecordsToDelete(end) for name, end in ends.items()})


async def delete_positions(world: World, topic: str) -> None:
    """Let the group's positions expire."""
    how = ("--bootstrap-server", world.servers.kafka.bootstrap, "--delete-offsets", "--group", world.group, "--topic", topic)
    await run_tool("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *how, logs=world.folder / "logs")


async def make_topic_anew(world: World, topic: str) -> None:
    """Delete the topic and make another one of its name."""
    await world.cluster.delete([topic])
    await world.cluster.create({topic: QUERIES.partitions})


def _partition(name: str) -> TopicPartition:
    topic, _, number = name.rpartition("/")
    return TopicPartition(topic, int(number))
