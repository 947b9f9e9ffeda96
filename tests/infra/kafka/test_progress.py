"""What a member says of its progress: a wedge is found, a long handler and an idle worker are none."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from infra.clock import SystemClock
from infra.health import Watch, observe, stalled
from infra.kafka.board import RuntimeConfig
from infra.kafka.progress import HANDLER_GRACE_S, member_state
from infra.kafka.retry import RetryPolicy
from infra.vitals import Vitals
from tests.fakes.inbox import MemoryInbox
from tests.infra.kafka.test_runtime import FAST, World, failed, query
from topics.envelope import Event
from topics.errors import OutageError
from topics.events import Payload


class NoLag:
    async def look(self, group: str, partitions: Any) -> dict[Any, int]:
        del group, partitions
        return {}


def vitals_of(world: World) -> Vitals:
    return Vitals([world.runtime], SystemClock(), NoLag())


def judged(world: World, *, for_s: float) -> list[str]:
    """What a watch says that sees the member as it is now for so long."""
    watch, now_s = Watch(), 0.0
    while now_s <= for_s:
        watch = observe(watch, member_state(world.runtime.board, running=world.runtime.snapshot()["running"]), now_s)
        now_s += 5.0
    return stalled(watch, now_s)


@dataclass
class Stuck:
    """A handler that goes on when it is let."""

    go_on: anyio.Event = field(default_factory=anyio.Event)
    running: int = 0

    async def __call__(self, event: Event[Any]) -> AsyncGenerator[Payload]:
        self.running += 1
        await self.go_on.wait()
        yield failed(event)


class SilentInbox(MemoryInbox):
    """Never answers a start: not an outage, a wedge."""

    async def start(self, claim_ids: Any, *, owner: str) -> Any:
        del claim_ids, owner
        await anyio.Event().wait()


async def test_a_wedged_dispatcher_is_found_though_the_process_answers_and_records_still_come_in():
    """War story 36."""
    stuck = Stuck()
    world = World(
        [query(0, n, f"t{n}") for n in range(40)],
        stuck,
        inbox=SilentInbox(),
        config=RuntimeConfig(slots=8, stall_s=0.05, drain_s=0, retry=FAST),
    )
    vitals = vitals_of(world)
    async with world.running():
        await world.until(lambda: vitals.liveness() == {"g": ["dispatch"]})
        assert vitals.readiness() == [], "ready and wedged are two things"
        world.runtime.request_stop()


async def test_a_long_legitimate_handler_is_no_false_alarm_and_one_that_cannot_be_stopped_is_found():
    stuck = Stuck()
    world = World([query(0, n, f"t{n}") for n in range(2)], stuck, config=RuntimeConfig(slots=2, handler_timeout_s=300, retry=FAST))
    async with world.running():
        await world.until(lambda: stuck.running == 2 and world.runtime.board.counters.commits > 0)
        assert set(judged(world, for_s=295.0)) <= {"intake"}, "its rounds are not played here"
        assert "handlers" in judged(world, for_s=300 + HANDLER_GRACE_S + 10)
        stuck.go_on.set()
        await world.until(world.all_committed)


async def test_work_behind_full_slots_or_a_retry_is_not_admissible():
    stuck = Stuck()
    world = World([query(0, n, f"t{n}") for n in range(20)], stuck, config=RuntimeConfig(slots=2, retry=FAST))
    async with world.running():
        await world.until(lambda: world.runtime.board.counters.admitted == 20)
        await world.until(lambda: stuck.running == 2)
        assert "dispatch" not in judged(world, for_s=200.0)
        stuck.go_on.set()
        await world.until(world.all_committed)


async def test_an_idle_worker_is_alive_and_ready():
    world = World([query(0, 0, "t")], Stuck(anyio.Event()))
    world.handler.go_on.set()
    vitals = vitals_of(world)
    async with world.running():
        await world.until(world.all_committed)
        assert set(judged(world, for_s=3600.0)) <= {"intake"}
        assert (vitals.liveness(), vitals.readiness()) == ({}, [])


async def test_readiness_is_false_before_the_assignment_during_an_outage_and_while_draining():
    stuck = Stuck()
    world = World([query(0, 0, "t")], stuck)
    vitals = vitals_of(world)
    assert vitals.readiness() == ["g: no assignment yet"]
    world.inbox.down = True
    async with world.running():
        await world.until(lambda: vitals.readiness() == ["g: the inbox is down"])
        assert judged(world, for_s=3600.0) == [], "who waits for a dependency is alive: a restart would not help it"
        world.inbox.down = False
        await world.until(lambda: stuck.running == 1)
        await world.until(lambda: vitals.readiness() == [])
        world.runtime.request_stop()
        assert vitals.readiness() == ["g: draining"]
        stuck.go_on.set()


@pytest.mark.parametrize("kind", ["skip", "hand_back"])
async def test_a_trial_that_told_nothing_is_followed_by_another(kind: str):
    """A trial that somebody else settled, or whose assignment ended, must not leave the gate shut for ever."""

    async def handler(event: Event[Any]) -> AsyncGenerator[Payload]:
        yield failed(event)

    world = World([query(0, n, f"t{n}") for n in range(4)], handler, config=RuntimeConfig(retry=RetryPolicy(outage_wait_s=0.02)))
    board = world.runtime.board
    async with world.running():
        board.shut_gate(OutageError("out"), 0.02)
        await world.until(lambda: world.runtime._settlement is not None)
        settlement = world.runtime._settlement
        assert settlement is not None
        conclude = settlement.conclude
        told = []

        async def tell_nothing_once(work: Any, error: Exception | None) -> None:
            if told:
                return await conclude(work, error)
            told.append(work)
            if kind == "skip":
                return settlement.skip(work)
            return await settlement.hand_back(work)

        settlement.conclude = tell_nothing_once
        await world.until(world.all_committed)
    assert board.gate.is_open


async def test_a_wedged_gate_is_found_too():
    """Shut, long due, nothing running, work ready: whatever the reason, nothing would ever start."""
    world = World([query(0, n, f"t{n}") for n in range(4)], Stuck())
    board = world.runtime.board
    board.shut_gate(OutageError("out"), 0.0)
    board.gate.trial_running = True
    async with world.running():
        await world.until(lambda: board.counters.admitted == 4)
        assert judged(world, for_s=120.0) == ["dispatch"]


async def test_a_rebalance_may_take_as_long_as_the_slowest_drain():
    """A rolling deploy must not end workers that wait for another to let go."""
    world = World([], Stuck(), config=RuntimeConfig(revoke_drain_s=120.0, stall_s=10.0))
    board = world.runtime.board
    board.rebalance_ended()
    board.rebalance_began()
    assert judged(world, for_s=100.0) == []
    board.rebalance_ended()
    assert judged(world, for_s=100.0) == ["intake"]
