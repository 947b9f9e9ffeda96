"""The runtime alone, with handlers that do nothing or wait, beside a plain client loop that only reads.

Each row reads the same records from their beginning in a group of its own, one after the other in one process.
"""

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

import anyio
from aiokafka import AIOKafkaConsumer

from bench import rig
from bench.no_inbox import NoInbox
from infra.claims import Claim, Failure, Inbox
from infra.clock import SystemClock
from infra.collector import calm_collector
from infra.kafka.board import RuntimeConfig
from infra.kafka.consumer import POLL_RECORDS, POLL_TIMEOUT_MS, GroupConsumer
from infra.kafka.execution import Executor
from infra.kafka.publisher import DeadLetterTopic, EventPublisher, event_broker, raw_producer
from infra.kafka.routes import Route
from infra.kafka.runtime import Runtime
from infra.local.stack import BrokerKind
from infra.redis.client import connect
from infra.redis.inbox import RedisInbox
from topics.catalogue import DEAD_LETTERS, QUERIES, Catalogue
from topics.envelope import Event, encode
from topics.errors import TimedOutError
from topics.events import AnswerFailed, Payload, QueryAsked
from topics.records import OutboundRecord
from workers.demo.host import Host

RECORDS: Final = 30_000
WITHIN_S: Final = 90.0
RETENTION_S: Final = 3600
COLUMNS: Final = ("", "records", "seconds", "records/s", "cpu us/record", "ideal/time", "of the loop")


@dataclass(frozen=True, slots=True)
class Case:
    """One way to run the engine. `records` of those there are; more may be in hand when it stops."""

    name: str
    records: int
    handler_s: float = 0.0
    slots: int = 256
    claims: bool = False
    output: bool = False


CASES: Final = (
    Case("no-op, no claims", RECORDS),
    Case("no-op, claims in Redis", 20_000, claims=True),
    Case("one event out, claims in Redis", 8_000, claims=True, output=True),
    Case("50 ms, 256 slots, claims in Redis", 20_000, handler_s=0.05, claims=True),
    Case("1 s, 1,000 slots, claims in Redis", 10_000, handler_s=1.0, slots=1000, claims=True),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """How one case went. `records` are those that were settled when it was enough."""

    case: Case
    records: int
    seconds: float
    cpu_s: float

    @property
    def rate(self) -> float:
        """Records a second."""
        return self.records / self.seconds

    @property
    def cpu_us(self) -> float:
        """CPU microseconds of this process for a record."""
        return self.cpu_s * 1e6 / self.records

    @property
    def share_of_ideal(self) -> float | None:
        """1 when nothing but the handlers takes time."""
        case = self.case
        return self.rate * case.handler_s / case.slots if case.handler_s else None


@dataclass(slots=True)
class CountingInbox:
    """An inbox that tells when enough is settled, and when the first record was looked at."""

    enough: int
    inner: Inbox
    settled: int = 0
    began_s: float | None = None
    ended_s: float | None = None
    used_s: float = 0.0
    done: anyio.Event = field(default_factory=anyio.Event)

    async def look(self, claim_ids: Sequence[str]) -> Sequence[Claim]:
        """Look, and start the watch."""
        if self.began_s is None:
            self.began_s, self.used_s = time.monotonic(), -time.process_time()
        return await self.inner.look(claim_ids)

    async def start(self, claim_ids: Sequence[str], *, owner: str) -> Sequence[int]:
        """Start."""
        return await self.inner.start(claim_ids, owner=owner)

    async def settle(self, settled: Sequence[tuple[str, Literal["done", "dead"]]]) -> None:
        """Settle, and stop the watch when it is enough."""
        await self.inner.settle(settled)
        self.settled += len(settled)
        if self.settled >= self.enough and self.ended_s is None:
            self.ended_s = time.monotonic()
            self.used_s += time.process_time()
            self.done.set()

    async def fail(self, failures: Sequence[Failure]) -> None:
        """Nothing fails here, or the bench hangs until its limit and says so."""
        await self.inner.fail(failures)

    async def release(self, claim_ids: Sequence[str]) -> None:
        """What is handed back at the end."""
        await self.inner.release(claim_ids)

    def seconds(self) -> float:
        """From the first record in hand to the last of `enough` settled; 0 when it never came to that."""
        return self.ended_s - self.began_s if self.began_s and self.ended_s else 0.0


async def run(broker: BrokerKind) -> dict[str, Any]:
    """Measure every case. Prints the table."""
    async with rig.rig(broker) as host:
        await rig.publish_all(host.settings.kafka(), _records(Catalogue(host.settings.topic_prefix)))
        calm_collector()  # as a worker does
        loop_s = await _plain_loop(host)
        loop = RECORDS / loop_s
        measured = [await _measure(host, case, group=f"bench-{number}") for number, case in enumerate(CASES)]
    rows: list[Sequence[Any]] = [("aiokafka getmany loop, nothing else", RECORDS, loop_s, loop, "-", "-", 1.0)]
    rows += [
        (one.case.name, one.records, one.seconds, one.rate, one.cpu_us, one.share_of_ideal or "-", one.rate / loop)
        for one in measured
    ]
    rig.print_table("The engine, one process, one topic with 6 partitions", COLUMNS, rows)
    return {"getmany_loop_records_per_s": round(loop), "rows": [_as_json(one) for one in measured]}


def _as_json(one: Measured) -> dict[str, Any]:
    return {
        "name": one.case.name,
        "records": one.records,
        "records_per_s": round(one.rate),
        "cpu_us_per_record": round(one.cpu_us),
        "share_of_ideal": None if one.share_of_ideal is None else round(one.share_of_ideal, 3),
    }


def _records(catalogue: Catalogue) -> list[OutboundRecord]:
    """A key each, so that nothing but slots bounds concurrency."""
    now = SystemClock().now()
    return [
        encode(
            QueryAsked(thread_id=f"thread-{number}", text="Hello"),
            catalogue=catalogue,
            tenant="bench",
            source="bench",
            now=now,
            ordinal="0",
            event_id=f"q{number}",
        )
        for number in range(RECORDS)
    ]


async def _plain_loop(host: Host) -> float:
    """Seconds to read everything in a group, without looking at it."""
    client: Any = AIOKafkaConsumer(
        Catalogue(host.settings.topic_prefix).name(QUERIES),
        **host.settings.kafka().client_options(),
        group_id="bench-loop",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    await client.start()
    try:
        return await _time_reading(client)
    finally:
        await client.stop()


async def _time_reading(client: Any) -> float:
    seen, began_s = 0, 0.0
    with anyio.move_on_after(WITHIN_S):
        while seen < RECORDS:
            batches = await client.getmany(timeout_ms=POLL_TIMEOUT_MS, max_records=POLL_RECORDS)
            began_s = began_s or (time.monotonic() if batches else 0.0)
            seen += sum(map(len, batches.values()))
        return time.monotonic() - began_s
    raise TimedOutError(f"the loop read {seen} of {RECORDS} records within {WITHIN_S:g} s")


async def _measure(host: Host, case: Case, *, group: str) -> Measured:
    settings, catalogue, clock = host.settings, Catalogue(host.settings.topic_prefix), SystemClock()
    async with AsyncExitStack() as stack:
        redis = connect(settings.redis_url, timeout_s=10.0)
        stack.push_async_callback(redis.aclose)
        inbox = CountingInbox(case.records, RedisInbox(redis, group=group, retention_s=RETENTION_S) if case.claims else NoInbox())
        broker = await stack.enter_async_context(event_broker(settings.kafka(), client_id=group))
        letters = await stack.enter_async_context(raw_producer(settings.kafka()))
        runtime = Runtime(
            group=group,
            owner=group,
            routes=[Route(QUERIES, cast("Any", _handler(case)))],
            catalogue=catalogue,
            consumer=GroupConsumer(settings.kafka(), group=group, topics=[catalogue.name(QUERIES)]),
            inbox=inbox,
            executor=Executor(EventPublisher(broker), catalogue, clock, group, settings.handler_timeout_s),
            dead_letters=DeadLetterTopic(letters, topic=catalogue.name(DEAD_LETTERS)),
            clock=clock,
            config=RuntimeConfig(slots=case.slots, drain_s=5.0),
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(runtime.run)
            with anyio.move_on_after(WITHIN_S):
                await inbox.done.wait()
            measured = Measured(case, inbox.settled, inbox.seconds(), inbox.used_s)
            runtime.request_stop()
    if not measured.seconds:
        raise TimedOutError(f"{case.name}: {measured.records} of {case.records} records were settled within {WITHIN_S:g} s")
    return measured


def _handler(case: Case) -> Any:
    async def handle(event: Event[QueryAsked]) -> AsyncGenerator[Payload]:
        if case.handler_s:
            await anyio.sleep(case.handler_s)
        if case.output:
            yield AnswerFailed(thread_id=event.payload.thread_id, query_id=event.id, attempt=1, code="refused")

    return handle
