"""What intake, dispatch and settlement share of one group member: partitions, lanes, work in flight, the intake gate."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio
import structlog

from infra.clock import SystemClock
from infra.kafka.assignment import Assignment, Work
from infra.kafka.figures import Counters, InFlight
from infra.kafka.gate import IntakeGate
from infra.kafka.lanes import LaneTable
from infra.kafka.retry import RetryPolicy
from infra.kafka.routes import Route
from topics.catalogue import Catalogue
from topics.errors import OutageError

TopicPartition = tuple[str, int]
T = TypeVar("T")

_log: Any = structlog.get_logger("sluice.runtime")


@dataclass(frozen=True, slots=True)
class RuntimeConfig:
    """Bounds. `slots` are units of work running at once; the `max_` bounds are per partition.

    `stall_s` is how long work may wait that could move, before the member counts as wedged.
    """

    slots: int = 64
    max_buffered_records: int = 512
    max_buffered_bytes: int = 16 * 1024 * 1024
    max_span: int = 16_384
    handler_timeout_s: float = 300.0
    stall_s: float = 60.0
    commit_interval_s: float = 0.5
    drain_s: float = 25.0
    revoke_drain_s: float = 20.0
    retry: RetryPolicy = field(default_factory=RetryPolicy)


class Board:
    """The shared state. Everything runs on one event loop, so nothing here needs a lock."""

    def __init__(
        self,
        *,
        group: str,
        routes: Sequence[Route],
        catalogue: Catalogue,
        clock: SystemClock,
        config: RuntimeConfig,
        jitter: Callable[[], float],
    ) -> None:
        self.group = group
        self.catalogue = catalogue
        self.clock = clock
        self.config = config
        self.jitter = jitter
        self.routes = {route.spec.name: route for route in routes}
        self.lanes: dict[str, LaneTable[Work]] = {name: LaneTable() for name in self.routes}
        self.assignments: dict[TopicPartition, Assignment] = {}
        self.in_flight = InFlight(clock)
        self.gate = IntakeGate()
        self.counters = Counters()
        self.stopping = anyio.Event()
        self.has_joined = False
        self.unwritten = 0
        self.committed_at_s = clock.monotonic_s()
        self._rebalancing_since_s: float | None = None
        self._wake = anyio.Event()

    @property
    def wake(self) -> anyio.Event:
        """What ends at the next change. Take it before looking, so that no change falls between the look and the wait."""
        if self._wake.is_set():
            self._wake = anyio.Event()
        return self._wake

    def notify(self) -> None:
        """Something changed: whoever waits for `wake` looks again. Cheap, because every record calls it more than once."""
        self._wake.set()

    def lanes_of(self, work: Work) -> LaneTable[Work]:
        """The lanes of the work's topic; its replay topic shares them."""
        return self.lanes[self.catalogue.spec(work.record.topic).name]

    def finish(self, work: Work) -> None:
        """The record is settled: its offset counts now."""
        work.assignment.watermark.finish(work.record.offset)
        work.assignment.admitted_at_s.pop(work.record.offset, None)
        work.assignment.buffered -= 1
        work.assignment.buffered_bytes -= work.size_bytes
        self.in_flight.discard(work)

    def requeue(self, work: Work, *, delay_s: float) -> None:
        """Put a head back to wait. Work of an assignment that ends is let go: its next owner gets it delivered."""
        self.in_flight.discard(work)
        lanes = self.lanes_of(work)
        if work.assignment.draining:
            lanes.release(work.lane)
        else:
            lanes.postpone(work.lane, due_at_s=self.clock.monotonic_s() + delay_s)
        self.notify()

    def busy(self, ending: Iterable[Assignment]) -> list[Work]:
        """Work in flight that belongs to these assignments."""
        ended = set(ending)
        return [work for work in self.in_flight if work.assignment in ended]

    @property
    def is_rebalancing(self) -> bool:
        """Whether partitions are being dealt: at the start, and between letting some go and being given others."""
        return not self.has_joined or self._rebalancing_since_s is not None

    def rebalance_began(self) -> None:
        """Partitions are about to go, or to be dealt anew."""
        if self._rebalancing_since_s is None:
            self._rebalancing_since_s = self.clock.monotonic_s()

    def rebalance_ended(self) -> None:
        """The member knows its partitions, be it none."""
        self.has_joined = True
        self.counters.rebalances += 1
        if self._rebalancing_since_s is not None:
            self.counters.rebalance_s += self.clock.monotonic_s() - self._rebalancing_since_s
        self._rebalancing_since_s = None

    def shut_gate(self, error: Exception, delay_s: float) -> None:
        """A dependency is down for everybody: nothing starts for a while."""
        if self.gate.outage(until_s=self.clock.monotonic_s() + delay_s, reason=str(error)):
            self.counters.outages += 1
            _log.error("outage_began", group=self.group, why=str(error))

    def open_gate(self) -> None:
        """A dependency that was down answers again."""
        if self.gate.succeeded():
            _log.info("outage_ended", group=self.group)
            self.notify()

    async def until_answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask until there is an answer. An outage slows intake; it loses nothing and spends no attempt (P7)."""
        waited = False
        while True:
            try:
                answer = await ask()
            except OutageError as error:
                waited = True
                await self.sit_out(error)
                continue
            if waited:
                self.open_gate()
            return answer

    async def sit_out(self, error: OutageError) -> None:
        """Shut the gate and wait a moment."""
        wait_s = self.config.retry.outage_wait_s
        self.shut_gate(error, wait_s)
        await anyio.sleep(min(wait_s, 1.0) * (0.5 + self.jitter()))

    def now_ms(self) -> int:
        """Epoch milliseconds."""
        return int(self.clock.now().timestamp() * 1000)
