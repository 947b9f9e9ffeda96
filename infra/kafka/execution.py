"""Run one handler for one unit of work, and publish what it yields."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, cast

import anyio

from infra.clock import SystemClock
from infra.kafka.assignment import Work
from infra.kafka.routes import BatchHandler, Handler, Route
from topics.catalogue import Catalogue
from topics.envelope import Event, encode, with_attempt
from topics.errors import TimedOutError
from topics.events import Payload
from topics.records import OutboundRecord

T = TypeVar("T")

Outcomes = dict[Work, Exception | None]

# Takes a record out of its batch, which still runs, and has its end told by the function: None when it was stopped.
LetOut = Callable[[Work, Callable[[], Coroutine[Any, Any, Outcomes]]], None]


class AssignmentEndedError(Exception):
    """The partition is somebody else's now: nothing more may be published for this record."""


class Publisher(Protocol):
    """Writes events."""

    async def send(self, record: OutboundRecord) -> Awaitable[Any]:
        """Hand a record over; the awaitable ends with the broker's acknowledgement, or raises OutageError or RejectedError."""
        ...


class Tracer(Protocol):
    """Follows records on their way. Without one nothing is traced, and nothing is paid for it."""

    def handling(self, works: Sequence[Work]) -> AbstractContextManager[dict[Work, Exception | None]]:
        """Follow one unit for as long as the block runs; how each of its records ended goes into what it gives."""
        ...

    def traceparent(self) -> str | None:
        """What an event that is published now says of where it comes from."""
        ...

    def sending(self, record: OutboundRecord) -> AbstractContextManager[None]:
        """Follow the handing over of one event."""
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
    tracer: Tracer | None = None
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
        if self.tracer is None or payload.STREAMED:
            self._unacknowledged.append(await self.publisher.send(record))
            return
        with self.tracer.sending(record):
            self._unacknowledged.append(await self.publisher.send(record))

    async def flush(self) -> None:
        """Wait until the broker has acknowledged everything that was sent."""
        for acknowledgement in self._unacknowledged:
            await acknowledgement
        self._unacknowledged.clear()


@dataclass(slots=True)
class Attempt:
    """One run of a handler. It ends by itself, by its time limit, or because we stop it."""

    scope: anyio.CancelScope
    stopped: bool = False

    def cancel(self) -> None:
        """Stop it: that is nobody's failure, and no outcome."""
        self.stopped = True
        self.scope.cancel()


class _Closing(Generic[T]):
    """Closes a handler; what made us close it is told, and not that a task group around its yield wraps the closing in a group."""

    def __init__(self, handler: AsyncGenerator[T]) -> None:
        self._handler = handler

    async def __aenter__(self) -> AsyncGenerator[T]:
        return self._handler

    async def __aexit__(self, *raised: object) -> None:
        try:
            await self._handler.aclose()
        except BaseExceptionGroup as group:
            _, failed = group.split(GeneratorExit)
            if failed is not None:
                raise failed from None


def _innermost(error: Exception) -> Exception:
    """What a group holds, when that is one error: it has a fate of its own."""
    if not isinstance(error, ExceptionGroup):
        return error
    group = cast("ExceptionGroup[Exception]", error)
    return _innermost(group.exceptions[0]) if len(group.exceptions) == 1 else group


@dataclass(frozen=True, slots=True)
class Executor:
    """Runs handlers within a time bound and reports how each record of a unit ended: None, or what was raised."""

    publisher: Publisher
    catalogue: Catalogue
    clock: SystemClock
    source: str
    timeout_s: float
    tracer: Tracer | None = None

    async def run(self, route: Route, works: Sequence[Work], let_out: LetOut | None = None) -> Outcomes:
        """Handle one unit. No outcome when it was stopped by `cancel` of its works' scope; a caller's cancellation passes.

        Args:
            let_out: Is given each record of a batch as soon as the handler tells its result, and the record has no outcome here.
        """
        if self.tracer is None:
            return await self._run(route, works, let_out, {})
        with self.tracer.handling(works) as ended:
            outcomes = await self._run(route, works, let_out, ended)
            ended.update(outcomes)
        return outcomes

    def refuse(self, outcomes: Mapping[Work, Exception | None]) -> None:
        """Follow records that no handler is given."""
        if self.tracer is None:
            return
        for work, refusal in outcomes.items():
            with self.tracer.handling([work]) as ended:
                ended[work] = refusal

    async def _run(self, route: Route, works: Sequence[Work], let_out: LetOut | None, failed: Outcomes) -> Outcomes:
        if route.handler is not None:
            return await self._attempt(works, self._run_one(route.handler, works[0]))
        told: Outcomes = {}
        running = list(works)

        async def end(outbox: Outbox, result: Payload | Exception) -> None:
            work = outbox.work
            running.remove(work)
            work.scope = None
            if isinstance(result, Exception):
                failed[work] = result
            publish = partial(self._attempt_to_end, outbox, result)
            if let_out is None:
                told.update(await publish())
            else:
                let_out(work, publish)

        return await self._attempt(running, self._run_batch(route.batch_handler, works, end)) | told

    async def _attempt_to_end(self, outbox: Outbox, result: Payload | Exception) -> Outcomes:
        if isinstance(result, Exception):
            return {outbox.work: result}
        return await self._attempt([outbox.work], self._publish(outbox, result))

    async def _publish(self, outbox: Outbox, payload: Payload) -> None:
        await outbox.send(payload)
        await outbox.flush()

    async def _attempt(self, works: Sequence[Work], run: Coroutine[Any, Any, None]) -> Outcomes:
        """Run within the time limit; what leaves `works` meanwhile has no outcome here."""
        # One scope for the time limit and for our wish to stop: scopes are what a record costs most.
        attempt = Attempt(anyio.CancelScope(deadline=anyio.current_time() + self.timeout_s))
        for work in works:
            work.scope = attempt
        try:
            error = await self._guard(attempt, run)
        finally:
            for work in works:
                work.scope = None
        return {} if attempt.stopped and attempt.scope.cancelled_caught else dict.fromkeys(works, error)

    async def _guard(self, attempt: Attempt, run: Coroutine[Any, Any, None]) -> Exception | None:
        try:
            with attempt.scope:
                await run
        except asyncio.CancelledError as error:
            if anyio.current_effective_deadline() == float("-inf"):
                raise
            # A scope inside the handler leaked: that is the handler's failure, not our wish to stop.
            leaked = RuntimeError("the handler leaked a cancellation")
            leaked.__cause__ = error
            return leaked
        except Exception as error:  # noqa: BLE001 -- the runtime decides every error's fate
            failure = _innermost(error)
            return self._took_too_long() if isinstance(failure, TimeoutError) else failure
        return self._took_too_long() if attempt.scope.cancelled_caught else None

    def _took_too_long(self) -> TimedOutError:
        return TimedOutError(f"the handler took longer than {self.timeout_s:g} s")

    async def _run_one(self, handler: Handler | None, work: Work) -> None:
        if handler is None or work.event is None:
            raise ValueError("no handler, or a record that was not understood")
        outbox = self._outbox(work)
        async with _Closing(handler(outbox.event)) as payloads:
            async for payload in payloads:
                await outbox.send(payload)
                if not payload.STREAMED:
                    await outbox.flush()
        await outbox.flush()

    async def _run_batch(
        self, handler: BatchHandler | None, works: Sequence[Work], end: Callable[[Outbox, Payload | Exception], Awaitable[None]]
    ) -> None:
        if handler is None:
            raise ValueError("no batch handler")
        outboxes = {id(outbox.event): outbox for outbox in map(self._outbox, works)}
        async with _Closing(handler([outbox.event for outbox in outboxes.values()])) as results:
            async for event, result in results:
                if (outbox := outboxes.pop(id(event), None)) is None:
                    raise ValueError("a batch told of a record twice, or of one that it was not given")
                await end(outbox, result)

    def _outbox(self, work: Work) -> Outbox:
        if work.event is None:
            raise ValueError("a record that was not understood has no handler")
        event = work.event if work.event.attempt == work.starts else with_attempt(work.event, work.starts)
        if self.tracer is not None and (traceparent := self.tracer.traceparent()) is not None:
            event = replace(event, traceparent=traceparent)
        return Outbox(work, event, self.publisher, self.catalogue, self.clock, self.source, self.tracer)
