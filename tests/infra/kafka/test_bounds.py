"""P7: whatever stands still, what is in hand stays within its bound and one poll."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any

import anyio

from infra.kafka.board import RuntimeConfig
from infra.kafka.retry import RetryPolicy
from infra.kafka.settlement import FLOOD_PAUSE_S
from tests.fakes.inbox import MemoryInbox
from tests.infra.kafka.test_runtime import FAST, World, failed, query
from topics.envelope import Event
from topics.errors import MalformedError, RejectedError, UnavailableError
from topics.events import Payload

ONE_POLL = 7  # records of the fake consumer
FOR_EVER = RetryPolicy(base_s=0.001, cap_s=0.002, max_failures=10**9)


@dataclass
class Peaks:
    """The highest figures at any poll: what intake was about to add to."""

    records: int = 0
    size_bytes: int = 0
    span: int = 0
    lanes: int = 0
    polls: int = 0

    def watch(self, world: World) -> "Peaks":
        poll, board = world.consumer.poll, world.runtime.board

        async def watched(full: Any) -> Any:
            for held in board.assignments.values():
                self.records = max(self.records, held.buffered)
                self.size_bytes = max(self.size_bytes, held.buffered_bytes)
                self.span = max(self.span, held.watermark.span())
            self.lanes = max(self.lanes, sum(lanes.lanes() for lanes in board.lanes.values()))
            self.polls += 1
            return await poll(full)

        world.consumer.poll = watched
        return self


@dataclass
class Gated:
    """Handlers wait for `go_on`; those of `free` threads do not."""

    go_on: anyio.Event = field(default_factory=anyio.Event)
    is_free: Callable[[str], bool] = field(default=lambda _: False)

    async def __call__(self, event: Event[Any]) -> AsyncGenerator[Payload]:
        if not self.is_free(event.payload.thread_id):
            await self.go_on.wait()
        yield failed(event)


async def stands_still(world: World, peaks: Peaks) -> None:
    """Intake has nothing more that it may take: many polls in a row bring nothing."""
    board, admitted, since = world.runtime.board, -1, 0

    def nothing_comes() -> bool:
        nonlocal admitted, since
        if board.counters.admitted != admitted:
            admitted, since = board.counters.admitted, peaks.polls
        return admitted > 0 and peaks.polls - since > 30

    await world.until(nothing_comes)


async def test_bytes_in_hand_are_bounded_however_few_the_records():
    large = b'{"thread_id":"%s","text":"' + b"x" * 10_000 + b'"}'
    handler = Gated()
    config = RuntimeConfig(max_buffered_bytes=100_000, retry=FAST, commit_interval_s=0.01)
    world = World([query(0, n, f"t{n}", value=large) for n in range(100)], handler, config=config)
    peaks = Peaks().watch(world)
    async with world.running():
        await stands_still(world, peaks)
        assert 100_000 <= peaks.size_bytes <= 100_000 + ONE_POLL * 10_500
        handler.go_on.set()
        await world.until(world.all_committed)
    assert peaks.size_bytes <= 100_000 + ONE_POLL * 10_500


async def test_one_stuck_record_lets_only_so_many_pass_it_by():
    """The span bounds what a crash makes the next owner look through, and what the watermark remembers."""
    handler = Gated(is_free=lambda thread: thread != "t0")
    config = RuntimeConfig(max_span=50, retry=FAST, commit_interval_s=0.01)
    world = World([query(0, n, f"t{n}") for n in range(300)], handler, config=config)
    peaks = Peaks().watch(world)
    async with world.running():
        await stands_still(world, peaks)
        assert 50 <= peaks.span <= 50 + ONE_POLL
        assert world.consumer.committed["queries", 0] == 0
        handler.go_on.set()
        await world.until(world.all_committed)


async def test_when_everything_fails_for_a_long_time_what_waits_for_its_retry_is_what_fits():
    """War story 6: the retry queue is the lanes, and the lanes are the buffer."""
    mended = [False]

    async def handler(event: Event[Any]) -> AsyncGenerator[Payload]:
        if not mended[0]:
            raise UnavailableError("the provider is down")
        yield failed(event)

    config = RuntimeConfig(slots=8, max_buffered_records=40, retry=FOR_EVER, commit_interval_s=0.01)
    world = World([query(n % 2, n // 2, f"t{n}") for n in range(600)], handler, config=config)
    peaks = Peaks().watch(world)
    board = world.runtime.board
    async with world.running():
        await world.until(lambda: board.counters.retried > 1500)
        assert 40 <= peaks.records <= 40 + ONE_POLL
        assert peaks.lanes <= 2 * (40 + ONE_POLL)
        assert len(board.in_flight) <= 8 + peaks.lanes
        assert sum(len(table._waiting) for table in board.lanes.values()) <= 4 * peaks.lanes, "no timer outlives its wait"
        mended[0] = True
        await world.until(world.all_committed)
    assert board.counters.peak_running <= 8
    assert not world.graves.records


async def test_dead_letters_that_nobody_takes_are_bounded_too():
    """Each waits in a task of its own."""

    async def handler(event: Event[Any]) -> AsyncGenerator[Payload]:
        raise MalformedError("never good")
        yield failed(event)

    config = RuntimeConfig(slots=4, max_buffered_records=30, retry=RetryPolicy(outage_wait_s=0.01), commit_interval_s=0.01)
    world = World([query(0, n, f"t{n}") for n in range(80)], handler, config=config)
    world.graves.down = True
    peaks = Peaks().watch(world)
    async with world.running():
        await stands_still(world, peaks)
        assert peaks.records <= 30 + ONE_POLL
        assert len(world.runtime.board.in_flight) <= 30 + ONE_POLL
        assert world.consumer.committed["queries", 0] == 0
        world.graves.down = False
        await world.until(lambda: len(world.graves.records) == 80)
        await world.until(world.all_committed)


class SlowToSettle(MemoryInbox):
    """Does not answer to `settle` until it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = anyio.Event()

    async def settle(self, settled: Any) -> None:
        await self.go_on.wait()
        await super().settle(settled)


async def test_what_is_done_and_not_yet_written_counts_as_in_hand():
    inbox = SlowToSettle()
    config = RuntimeConfig(max_buffered_records=30, retry=FAST, commit_interval_s=0.01)
    world = World([query(0, n, f"t{n}") for n in range(200)], Gated(is_free=lambda _: True), config=config, inbox=inbox)
    peaks = Peaks().watch(world)
    async with world.running():
        await stands_still(world, peaks)
        assert 30 <= peaks.records <= 30 + ONE_POLL
        assert world.runtime.board.unwritten <= 30 + ONE_POLL
        inbox.go_on.set()
        await world.until(world.all_committed)


async def test_a_flood_of_dead_letters_pauses_the_intake_and_says_so():
    """Case 32: a systemic fault must not push a whole topic into the dead letters unseen."""

    async def handler(event: Event[Any]) -> AsyncGenerator[Payload]:
        raise RejectedError("everything is wrong today", code="policy_denied")
        yield failed(event)

    config = RuntimeConfig(slots=1, retry=FAST, commit_interval_s=0.01)
    world = World([query(0, n, f"t{n}") for n in range(300)], handler, config=config)
    board = world.runtime.board
    async with world.running():
        await world.until(lambda: not board.gate.is_open)
        assert (board.gate.reason, board.counters.outages) == ("a flood of dead letters", 1)
        assert 100 <= len(world.graves.records) <= 100 + 2
        assert board.gate.shut_until_s is not None
        assert board.gate.shut_until_s - board.clock.monotonic_s() > FLOOD_PAUSE_S / 2
        world.runtime.request_stop()
