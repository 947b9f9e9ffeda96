"""P15: dead letters go back by the real commands: cut off by SIGKILL, run by two at once, run again, edited, and in vain."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import Final

import anyio

from bench.chaos.basics import conclude
from bench.chaos.facts import Performed
from bench.chaos.inputs import Task
from bench.chaos.scenarios.operators import Operator
from bench.chaos.verdict import Verdict
from bench.chaos.world import LOOK_EVERY_S, World
from infra.kafka.publisher import raw_producer
from topics.catalogue import QUERIES
from workers import dead_letters
from workers.dead_letters import MAX_REPLAYS, DeadLetter
from workers.operations import Operations

MENDED: Final = "unavailable"
HOPELESS: Final = "chaos_reject"
UNRESOLVED: Final = 3
CUT_OFF_AFTER: Final = 8  # records on the replay topic, those among them
RATE_PER_S: Final = 4
SEEN_WITHIN_S: Final = 60.0


async def replays(world: World, seed: int, *, mended: int = 24, hopeless: int = 4, edited: int = 3) -> Verdict:
    """P15: of some dead letters the cause is mended, of some the value, and of others neither ever is."""
    world.settings |= {"max_failures": 1}
    await world.start_workers(2)
    tasks = [Task(f"m{number}", f"m{number}", "write", work_ms=50, fails=1) for number in range(mended)]
    tasks += [Task(f"h{number}", f"h{number}", "none", work_ms=10, does="reject") for number in range(hopeless)]
    tasks += [Task(f"e{number}", f"e{number}", "write", work_ms=10, does="reject") for number in range(edited)]
    await world.publish(tasks)
    desk = Desk(world)
    await desk.until(lambda letters: len(letters) == len(tasks))
    inputs_end = await world.cluster.ends(world.catalogue.name(QUERIES))

    await desk.leave_unresolved(MENDED)
    await desk.cut_off(MENDED)
    await desk.twice_at_once(MENDED)
    await world.until(mended, within_s=SEEN_WITHIN_S)
    again = await desk.replay(MENDED)
    copies = await desk.on_replay_topic()
    changed = [task for task in tasks if task.event_id.startswith("e")]
    again += await desk.edit(changed)
    await world.until(mended + edited, within_s=SEEN_WITHIN_S)
    hopeless_ids = {letter.id for letter in await desk.letters() if letter.reason == HOPELESS and letter.state == "open"}
    for count in range(1, MAX_REPLAYS + 1):
        await desk.replay(HOPELESS)
        await desk.until(lambda letters, count=count: _replays_of(letters, hopeless_ids) == [count] * hopeless)
    refused = await desk.replay(HOPELESS)

    verdict = Verdict("P15", world.engine, seed)
    account = await conclude(world, verdict, "I1", "I2", "I4", "I5", within_s=60.0)
    done = {one.event_id for one in account.of(Performed) if one.applied}
    owed = [task for task in tasks if task.fails or task in changed]
    verdict.add("I14", [f"{task.event_id} was replayed and not done" for task in owed if task.event_id not in done])
    kept = [letter for letter in await desk.letters() if letter.edit is not None]
    verdict.add("I14", [f"{len(kept)} of {edited} edits were kept with their letters"] if len(kept) != edited else [])
    verdict.add("I14", [f"a replay of what had gone back sent {again} again"] if again else [])
    verdict.add("I14", [f"a letter was replayed beyond its limit: {refused}"] if refused else [])
    others = await world.cluster.ends(world.catalogue.name(QUERIES))
    verdict.add("I14", [f"other groups saw replays on the input: {inputs_end} became {others}"] if others != inputs_end else [])
    verdict.add("vacuous", [] if copies > mended else ["no dead letter went back twice, so that nothing shows that one counts"])
    verdict.figures |= {"replayed": mended, "copies_sent": copies, "edited": len(kept)}
    return verdict


def _replays_of(letters: list[DeadLetter], ids: set[str]) -> list[int]:
    return [letter.replays for letter in letters if letter.id in ids]


class Desk:
    """The desk of those who look after dead letters: they list, send back, and are cut off."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._operator = Operator(world)
        self._operations = Operations(self._operator.settings, operator="chaos")

    async def until(self, condition: Callable[[list[DeadLetter]], bool]) -> None:
        """Wait for the dead letters, in whatever state, to be so.

        Raises:
            TimeoutError: They never were.
        """
        with anyio.fail_after(SEEN_WITHIN_S):
            while not condition(await self.letters()):  # noqa: ASYNC110 -- what is awaited happens on a topic
                await anyio.sleep(LOOK_EVERY_S * 5)

    async def letters(self) -> list[DeadLetter]:
        """The dead letters in whatever state."""
        return dead_letters.select(await self._operations.load(), dead_letters.Filter(), states=dead_letters.STATES)

    async def replay(self, reason: str) -> int:
        """`sluice dead replay`. Returns how many went back."""
        told = await self._operator.run("dead", "replay", "--reason", reason)
        return len(told.get("replayed", []))

    async def twice_at_once(self, reason: str) -> None:
        """Two operators who do not know of each other."""
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(self.replay, reason)

    async def leave_unresolved(self, reason: str) -> None:
        """What a replay leaves that dies between a record and its resolution: the record went back, and the letter is open."""
        letters = [letter for letter in await self.letters() if letter.reason == reason][:UNRESOLVED]
        async with raw_producer(self._world.servers.kafka) as producer:
            for letter in letters:
                await producer.write(dead_letters.replay_record(letter, catalogue=self._world.catalogue, actor="killed"))

    async def cut_off(self, reason: str) -> None:
        """A slow replay that is killed in the middle."""
        slowly = ("dead", "replay", "--reason", reason, "--rate", str(RATE_PER_S))
        await self._operator.cut_off(slowly, self._until_some_went_back)

    async def edit(self, tasks: list[Task]) -> int:
        """`sluice dead edit`: one is killed behind its record; each is run by two at once, and again. Returns what that sent."""
        commands = [_edit(letter, task) for letter in await self.letters() for task in tasks if _is_about(letter, task)]
        before = await self.on_replay_topic()
        await self._operator.cut_off(commands[0], partial(self._until_on_replay_topic, before + 1))
        async with anyio.create_task_group() as group:
            for command in (*commands, *commands):
                group.start_soon(self._operator.run, *command)
        sent = await self.on_replay_topic()
        for command in commands:
            await self._operator.run(*command)
        return await self.on_replay_topic() - sent

    async def _until_some_went_back(self) -> None:
        await self._until_on_replay_topic(CUT_OFF_AFTER)

    async def _until_on_replay_topic(self, count: int) -> None:
        with anyio.fail_after(SEEN_WITHIN_S):
            while await self.on_replay_topic() < count:  # noqa: ASYNC110 -- what is awaited happens on a topic
                await anyio.sleep(LOOK_EVERY_S)

    async def on_replay_topic(self) -> int:
        """How many records have gone back."""
        return sum((await self._world.cluster.ends(self._world.catalogue.replay_name(QUERIES))).values())


def _is_about(letter: DeadLetter, task: Task) -> bool:
    return ("ce_id", task.event_id.encode()) in letter.original_headers


def _edit(letter: DeadLetter, task: Task) -> tuple[str, ...]:
    mended = json.dumps(asdict(replace(task, does="work")))
    return ("dead", "edit", letter.id, "--set", f"/text={json.dumps(mended)}", "--because", "it asked for its rejection", "--yes")
