"""The controls: each lacks what it says, and is otherwise ours or the rival as it is."""

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import anyio
import pytest

from bench.chaos.engines import runs
from bench.chaos.engines.commit_fetched import FetchedPositions
from bench.chaos.engines.dead_letter_not_awaited import FiredLetters
from bench.chaos.engines.table import CONTROLS
from bench.chaos.facts import Granted
from bench.no_inbox import NoInbox
from infra.kafka.dead_letter import Death
from topics.errors import OutageError
from topics.records import RawRecord

PARTITION = ("queries", 0)
RECORD = RawRecord("queries", 0, 4, b"k", b"v")
DEATH = Death("g", "code", "poison", "handler", "", "RejectedError", 1, 1, 1)
WANTED = {
    "commit_fetched",
    "no_claim",
    "no_effect_record",
    "no_fence",
    "dead_letter_not_awaited",
    "no_limiter",
    "faststream_ack",
    "faststream_nack",
    "faststream_concurrent",
}


def test_there_is_a_control_for_each_guard_and_each_rival():
    assert {control.engine for control in CONTROLS} == WANTED
    assert all(control.must_break for control in CONTROLS)


@pytest.mark.parametrize("name", sorted(WANTED - {"faststream_concurrent"}))  # a rival that need not be installed
def test_every_engine_can_be_run(name: str):
    assert callable(import_module(f"bench.chaos.engines.{name}").run)


@dataclass
class Partition:
    """A consumer of one partition."""

    committed: dict[Any, int] = field(default_factory=dict)

    async def poll(self, full: set[Any]) -> dict[Any, list[RawRecord]]:
        return {} if full else {PARTITION: [RECORD]}

    async def commit(self, positions: dict[Any, int]) -> bool:
        self.committed |= positions
        return True

    def reached(self) -> str:
        return "as it was"


async def test_the_fetched_position_is_committed_in_the_place_of_the_safe_one():
    partition = Partition()
    spoiled: Any = FetchedPositions(partition)  # pyright: ignore[reportArgumentType] -- as much of a consumer as it uses
    await spoiled.commit({PARTITION: 2})
    assert partition.committed == {PARTITION: 2}
    await spoiled.poll(set())
    await spoiled.commit({PARTITION: 2})
    assert partition.committed == {PARTITION: 5}
    assert spoiled.reached() == "as it was"


async def test_an_inbox_that_forgets_lets_a_settled_record_start():
    inbox = NoInbox()
    await inbox.settle([("a", "done")])
    assert [claim.state for claim in await inbox.look(["a"])] == ["new"]
    assert list(await inbox.start(["a"], owner="w")) == [1]


@dataclass
class NoTopic:
    """Dead letters that cannot be written."""

    asked: int = 0

    async def bury(self, record: RawRecord, death: Death) -> None:
        self.asked += 1
        raise OutageError(f"no topic for {record.position}, dead of {death.code}")


async def test_a_dead_letter_that_is_not_awaited_is_gone_without_a_word():
    letters = NoTopic()
    async with anyio.create_task_group() as tasks:
        await FiredLetters(letters, tasks).bury(RECORD, DEATH)
    assert letters.asked == 1


def granted(who: str, event_id: str, fence: int) -> Granted:
    return Granted(at_ns=0, who=who, event_id=event_id, key="k", fence=fence)


def test_a_zombie_is_one_whose_thread_somebody_else_was_granted_later():
    facts = [granted("w1", "a", 3), granted("w1", "b", 5), granted("w2", "b", 4), granted("w2", "c", 9)]
    assert runs.overtaken(facts, "w1") == set()
    assert runs.overtaken([*facts, granted("w2", "a", 4)], "w1") == {"a"}
