"""Run one handler for one unit of work, and publish what it yields."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio

from infra.clock import SystemClock
from infra.kafka.assignment import Work
from infra.kafka.routes import BatchHandler, Handler, Route
from topics.catalogue import Catalogue
from topics.envelope import Event, encode, with_attempt
from topics.errors import TimedOutError
from topics.events import Payload
from topics.records import OutboundRecord


class AssignmentEndedError(Exception):
    """The partition is somebody else's now: nothing more may be published for this record."""


class Publisher(Protocol):
    """Writes events."""

    async def send(self, record: OutboundRecord) -> Awaitable[Any]:
        """Hand a record over; the awaitable ends with the broker's acknowledgement, or raises OutageError or RejectedError."""
        ...


@dataclass(slots=True)
class Outbox:
    """The events of one record: their ids by order of yield, their acknowledgements awaited together."""

    work: Work
    event: Event[Any]
    publisher: Publisher
    catalogue: Catalogue
    clock: SystemClock
    source: str
    _counts: dict[str, int] = field(default_factory=dict[str, int])
    _unacknowledged: list[Awaitable[Any]] = field(default_factory=list[Awaitable[Any]])

    async def send(self, payload: Payload) -> None:
        """Publish one payload, caused by the record.

        Raises:
            AssignmentEndedError: Nothing was published.
        """
        if not self.work.assignment.live:
            raise AssignmentEndedError
        ordinal = self._counts[payload.TYPE] = self._counts.get(payload.TYPE, -1) + 1
        record = encode(
            payload,
            catalogue=self.catalogue,
            tenant=self.event.tenant,
            source=self.source,
            now=self.clock.now(),
            ordinal=str(ordinal),
            cause=self.event,
        )
        self._unacknowledged.append(await self.publisher.send(record))

    async def flush(self) -> None:
        """Wait until the broker has acknowledged everything that was sent."""
        for acknowledgement in self._unacknowledged:
            await acknowledgement
        self._unacknowledged.clear()


@dataclass(frozen=True, slots=True)
class Executor:
    """Runs handlers within a time bound and reports how each record of a unit ended: None, or what was raised."""

    publisher: Publisher
    catalogue: Catalogue
    clock: SystemClock
    source: str
    timeout_s: float

    async def run(self, route: Route, works: Sequence[Work]) -> dict[Work, Exception | None]:
        """Handle one unit. Only a cancellation that we asked for leaves as an exception."""
        if route.handler is not None:
            return {works[0]: await self._guard(lambda: self._run_one(route.handler, works[0]))}
        outcomes: dict[Work, Exception | None] = {}
        error = await self._guard(lambda: self._run_batch(route.batch_handler, works, outcomes))
        return {work: outcomes.get(work, error) for work in works}

    async def _guard(self, attempt: Callable[[], Awaitable[None]]) -> Exception | None:
        try:
            with anyio.fail_after(self.timeout_s):
                await attempt()
        except TimeoutError:
            return TimedOutError(f"the handler took longer than {self.timeout_s:g} s")
        except anyio.get_cancelled_exc_class() as error:
            if anyio.current_effective_deadline() == float("-inf"):
                raise
            # A scope inside the handler leaked: that is the handler's failure, not our wish to stop.
            leaked = RuntimeError("the handler leaked a cancellation")
            leaked.__cause__ = error
            return leaked
        except Exception as error:  # noqa: BLE001 -- the runtime decides every error's fate
            return error
        return None

    async def _run_one(self, handler: Handler | None, work: Work) -> None:
        if handler is None or work.event is None:
            raise ValueError("no handler, or a record that was not understood")
        outbox = self._outbox(work)
        async with aclosing(handler(outbox.event)) as payloads:
            async for payload in payloads:
                await outbox.send(payload)
                if not payload.STREAMED:
                    await outbox.flush()
        await outbox.flush()

    async def _run_batch(self, handler: BatchHandler | None, works: Sequence[Work], outcomes: dict[Work, Exception | None]) -> None:
        if handler is None:
            raise ValueError("no batch handler")
        outboxes = {id(outbox.event): outbox for outbox in (self._outbox(work) for work in works)}
        async with aclosing(handler([outbox.event for outbox in outboxes.values()])) as results:
            async for event, result in results:
                outbox = outboxes[id(event)]
                if isinstance(result, Exception):
                    outcomes[outbox.work] = result
                else:
                    await outbox.send(result)
        for outbox in outboxes.values():
            if outbox.work not in outcomes:
                await outbox.flush()
                outcomes[outbox.work] = None

    def _outbox(self, work: Work) -> Outbox:
        if work.event is None:
            raise ValueError("a record that was not understood has no handler")
        event = with_attempt(work.event, work.starts)
        return Outbox(work, event, self.publisher, self.catalogue, self.clock, self.source)
