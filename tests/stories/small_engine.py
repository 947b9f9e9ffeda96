"""The engine in this process, for faults whose cause is in a pure part. Its log is in memory, unless a story brings another one."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio

from infra.clock import SystemClock
from infra.kafka.board import RuntimeConfig, TopicPartition
from infra.kafka.dead_letter import Death, dead_letter
from infra.kafka.execution import Executor
from infra.kafka.retry import RetryPolicy
from infra.kafka.routes import Handler, Route
from infra.kafka.runtime import Runtime
from tests.fakes.consumer import MemoryConsumer
from tests.fakes.inbox import MemoryInbox
from topics.catalogue import QUERIES, Catalogue
from topics.envelope import Event
from topics.events import AnswerFailed
from topics.records import OutboundRecord, RawRecord

QUICK = RetryPolicy(base_s=0.01, cap_s=0.02, outage_wait_s=0.02, lease_wait_s=0.005)


def question(offset: int, thread: str, *, partition: int = 0) -> RawRecord:
    headers = (("ce_id", f"{partition}-{offset}".encode()), ("ce_type", b"query.asked"), ("ce_tenant", b"acme"))
    return RawRecord(
        "queries", partition, offset, f"acme/{thread}".encode(), b'{"thread_id":"%s","text":"?"}' % thread.encode(), headers
    )


def answer(event: Event[Any]) -> AnswerFailed:
    return AnswerFailed(thread_id=event.payload.thread_id, query_id=event.id, attempt=1, code="refused")


def quick(**changed: Any) -> RuntimeConfig:
    """Bounds whose times are a thousandth of the real ones."""
    return RuntimeConfig(**{"commit_interval_s": 0.003, "retry": QUICK, **changed})


@dataclass
class Outputs:
    """The output topic: acknowledged at once."""

    records: list[OutboundRecord] = field(default_factory=list)

    async def send(self, record: OutboundRecord) -> Awaitable[Any]:
        async def acknowledged() -> None:
            self.records.append(record)

        return acknowledged()


@dataclass
class Letters:
    """The dead-letter topic."""

    records: list[OutboundRecord] = field(default_factory=list)

    async def bury(self, record: RawRecord, death: Death) -> None:
        self.records.append(dead_letter(record, death, topic="dead-letters"))


@dataclass
class SmallEngine:
    """One member of a group. Another engine `after` it has the same log, commits and inbox, as after a restart."""

    consumer: Any
    handler: Handler
    config: RuntimeConfig = field(default_factory=quick)
    inbox: MemoryInbox = field(default_factory=MemoryInbox)
    outputs: Outputs = field(default_factory=Outputs)
    letters: Letters = field(default_factory=Letters)
    catalogue: Catalogue = field(default_factory=Catalogue)

    def __post_init__(self) -> None:
        clock, catalogue = SystemClock(), self.catalogue
        self.runtime = Runtime(
            group="g",
            owner="w",
            routes=[Route(QUERIES, self.handler)],
            catalogue=catalogue,
            consumer=self.consumer,
            inbox=self.inbox,
            executor=Executor(self.outputs, catalogue, clock, "story", self.config.handler_timeout_s),
            dead_letters=self.letters,
            clock=clock,
            config=self.config,
        )

    @property
    def counters(self) -> Any:
        return self.runtime.board.counters

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Until the block ends; then drain."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.runtime.run)
            yield
            self.runtime.request_stop()

    @asynccontextmanager
    async def killed(self) -> AsyncGenerator[None]:
        """Until the block ends; then nothing of it does anything any more."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.runtime.run)
            yield
            self.inbox.down = True  # the dead take nothing back
            tasks.cancel_scope.cancel()
        self.inbox.down = False

    async def until(self, condition: Callable[[], object], *, within_s: float = 10.0) -> None:
        with anyio.fail_after(within_s):
            while not condition():
                await anyio.sleep(0.002)

    @property
    def partitions(self) -> int:
        return len(self.runtime.board.assignments)

    @property
    def epochs(self) -> set[tuple[TopicPartition, int]]:
        """The assignments that are held now."""
        return {(partition, one.epoch) for partition, one in self.runtime.board.assignments.items()}

    def held(self, partition: TopicPartition) -> int:
        """How many records of a partition are in memory; 0 while it is not assigned."""
        found = self.runtime.board.assignments.get(partition)
        return found.buffered if found else 0

    def all_committed(self) -> bool:
        return all(self.consumer.committed[key] == log[-1].offset + 1 for key, log in self.consumer.logs.items())

    async def run_to_the_end(self) -> None:
        async with self.running():
            await self.until(self.all_committed)


def log_of(records: Sequence[RawRecord], **changed: Any) -> MemoryConsumer:
    logs: dict[tuple[str, int], list[RawRecord]] = {}
    for record in records:
        logs.setdefault((record.topic, record.partition), []).append(record)
    return MemoryConsumer(logs, **changed)


def after(dead: MemoryConsumer) -> MemoryConsumer:
    """The same log for the next member, from where the group committed."""
    successor = MemoryConsumer(dead.logs)
    successor.committed = dict(dead.committed)
    return successor
