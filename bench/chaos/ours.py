"""Our engine, put together as `workers/app.py` does it, with parts that also write down what they see.

A control takes the same `run` and gives it one part less.
"""

import resource
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import anyio

from bench.chaos.facts import Assigned, Claimed, Revoked, Sampled, Settled
from bench.chaos.ledger import Ledger, now_ns
from bench.chaos.perform import Perform, delivery_of
from bench.chaos.spec import Spec
from infra.claims import Claim, Failure, Inbox
from infra.clock import SystemClock
from infra.collector import calm_collector
from infra.kafka.board import RuntimeConfig
from infra.kafka.consumer import Consumer, GroupConsumer, RebalanceListener, TopicPartition
from infra.kafka.execution import Executor
from infra.kafka.publisher import DeadLetterTopic, EventPublisher, event_broker, raw_producer
from infra.kafka.retry import RetryPolicy
from infra.kafka.routes import Route
from infra.kafka.runtime import Runtime
from infra.kafka.settlement import DeadLetters
from infra.redis.inbox import RedisInbox
from infra.redis.positions import RedisPositionMemory
from topics.catalogue import DEAD_LETTERS, QUERIES
from topics.envelope import Event
from topics.events import AnswerCompleted, Payload, QueryAsked
from topics.records import RawRecord

CLAIM_RETENTION_S = 86_400
SAMPLE_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Guards:
    """The parts that a control may take away, each made from the one that we use."""

    inbox: Callable[[Inbox], Inbox] = lambda inbox: inbox
    consumer: Callable[[Consumer], Consumer] = lambda consumer: consumer
    dead_letters: Callable[[DeadLetters], DeadLetters] = lambda dead_letters: dead_letters


ALL_GUARDS = Guards()


async def run(spec: Spec, perform: Perform, guards: Guards = ALL_GUARDS) -> None:
    """Work until `perform.stopping` is set, then drain.

    Raises:
        HaltError: As the runtime, which see.
    """
    async with AsyncExitStack() as stack:
        runtime = await _build(spec, perform, guards, stack)
        calm_collector()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_stop_when_asked, perform, runtime)
            tasks.start_soon(_sample, perform, runtime)
            await runtime.run()
            tasks.cancel_scope.cancel()


async def _build(spec: Spec, perform: Perform, guards: Guards, stack: AsyncExitStack) -> Runtime:
    catalogue, clock, ledger = spec.catalogue, SystemClock(), perform.ledger
    broker = await stack.enter_async_context(event_broker(spec.connection, client_id=spec.incarnation))
    letters = await stack.enter_async_context(raw_producer(spec.connection))
    inbox = RedisInbox(perform.redis, group=spec.group, retention_s=CLAIM_RETENTION_S, keys=spec.keys)
    consumer = _WatchedConsumer(
        ledger,
        spec.connection,
        group=spec.group,
        topics=[catalogue.name(QUERIES), catalogue.replay_name(QUERIES)],
        memory=RedisPositionMemory(perform.redis, group=spec.group, keys=spec.keys),
        revoke_drain_s=spec.revoke_drain_s,
        session_timeout_s=spec.session_timeout_s,
    )
    handler = _Handler(perform)
    runtime = Runtime(
        group=spec.group,
        owner=spec.incarnation,
        routes=[Route(QUERIES, handler)],
        catalogue=catalogue,
        consumer=guards.consumer(consumer),
        inbox=_WatchedInbox(guards.inbox(inbox), ledger),
        executor=Executor(EventPublisher(broker), catalogue, clock, "chaos/worker", spec.handler_timeout_s),
        dead_letters=guards.dead_letters(DeadLetterTopic(letters, topic=catalogue.name(DEAD_LETTERS))),
        clock=clock,
        config=_config(spec),
    )
    handler.runtime = runtime
    return runtime


def _config(spec: Spec) -> RuntimeConfig:
    return RuntimeConfig(
        slots=spec.slots,
        max_buffered_records=spec.max_buffered_records,
        handler_timeout_s=spec.handler_timeout_s,
        drain_s=spec.drain_s,
        revoke_drain_s=spec.revoke_drain_s,
        retry=RetryPolicy(max_failures=spec.max_failures, outage_wait_s=spec.outage_wait_s),
    )


class _Handler:
    """Performs what a question asks for, and answers it while it still holds the thread."""

    def __init__(self, perform: Perform) -> None:
        self._perform = perform
        self.runtime: Runtime | None = None

    async def __call__(self, event: Event[QueryAsked]) -> AsyncGenerator[Payload]:
        delivery = delivery_of(event, epoch=self._epoch(event.record))
        async with self._perform.holding(delivery) as outcome:
            yield AnswerCompleted(thread_id=event.payload.thread_id, query_id=event.id, attempt=event.attempt, text=outcome)

    def _epoch(self, record: RawRecord) -> int:
        """A handler starts under a live assignment, which is the one on the board."""
        held = self.runtime.board.assignments.get((record.topic, record.partition)) if self.runtime else None
        return held.epoch if held else 0


async def _stop_when_asked(perform: Perform, runtime: Runtime) -> None:
    await perform.stopping.wait()
    runtime.request_stop()


async def _sample(perform: Perform, runtime: Runtime) -> None:
    while True:
        shown, peak = runtime.snapshot(), runtime.board.counters
        perform.ledger.write(
            Sampled(
                at_ns=now_ns(),
                who=perform.who,
                running=max(shown["running"], peak.peak_running),
                buffered=peak.peak_buffered,
                rss_mb=_rss_mb(),
                cpu_s=time.process_time(),
            )
        )
        await anyio.sleep(SAMPLE_EVERY_S)


def _rss_mb() -> float:
    """Resident memory now, in MiB; 0 where there is no /proc."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20
    except OSError:
        return 0.0


@dataclass(frozen=True, slots=True)
class _WatchedInbox:
    """Writes down what is claimed, before the inbox hears of it, and what is settled, after it and before its offset counts."""

    inner: Inbox
    ledger: Ledger

    async def look(self, claim_ids: Sequence[str]) -> Sequence[Claim]:
        return await self.inner.look(claim_ids)

    async def start(self, claim_ids: Sequence[str], *, owner: str) -> Sequence[int]:
        self.ledger.write(Claimed(at_ns=now_ns(), who=self.ledger.who, claim_ids=list(claim_ids)))
        return await self.inner.start(claim_ids, owner=owner)

    async def settle(self, settled: Sequence[tuple[str, Literal["done", "dead"]]]) -> None:
        await self.inner.settle(settled)
        for claim_id, state in settled:
            self.ledger.write(Settled(at_ns=now_ns(), who=self.ledger.who, claim_id=claim_id, state=state))

    async def fail(self, failures: Sequence[Failure]) -> None:
        await self.inner.fail(failures)

    async def release(self, claim_ids: Sequence[str]) -> None:
        await self.inner.release(claim_ids)


class _WatchedConsumer(GroupConsumer):
    """Writes down assignments and how long letting go took."""

    def __init__(self, ledger: Ledger, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._ledger = ledger

    async def start(self, listener: RebalanceListener) -> None:
        """Join the group, and listen first."""
        await super().start(_WatchedListener(listener, self._ledger))


@dataclass(frozen=True, slots=True)
class _WatchedListener:
    inner: RebalanceListener
    ledger: Ledger

    async def on_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        names, began_ns = list(partitions), now_ns()
        await self.inner.on_revoked(names)
        dwell_s = (now_ns() - began_ns) / 1e9
        self.ledger.write(Revoked(at_ns=now_ns(), who=self.ledger.who, partitions=_named(names), dwell_s=dwell_s))

    async def on_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        names = list(partitions)
        self.ledger.write(Assigned(at_ns=now_ns(), who=self.ledger.who, partitions=_named(names)))
        await self.inner.on_assigned(names)


def _named(partitions: Sequence[TopicPartition]) -> list[str]:
    return sorted(f"{topic}/{number}" for topic, number in partitions)
