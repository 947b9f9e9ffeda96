"""The runtime on a broker in memory: order, bounds, retries, dead letters, rebalances, drains."""

import asyncio
import itertools
import random
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from infra.clock import SystemClock
from infra.kafka.board import RuntimeConfig
from infra.kafka.dead_letter import REASON, Death, dead_letter, header_text
from infra.kafka.execution import Executor
from infra.kafka.retry import RetryPolicy
from infra.kafka.routes import BatchHandler, Handler, Route
from infra.kafka.runtime import Runtime
from tests.fakes.consumer import MemoryConsumer
from tests.fakes.inbox import MemoryInbox
from topics.catalogue import ANSWERS, QUERIES, TICKETS, Catalogue
from topics.envelope import Event
from topics.errors import ConfigError, LeaseBusyError, MalformedError, OutageError, UnavailableError
from topics.events import AnswerFailed, Payload, TicketTriaged
from topics.records import OutboundRecord, RawRecord

FAST = RetryPolicy(base_s=0.01, cap_s=0.02, outage_wait_s=0.02, lease_wait_s=0.005)


def query(
    partition: int, offset: int, thread: str, *, tenant: str = "acme", value: bytes | None = b'{"thread_id":"%s","text":"hi"}'
) -> RawRecord:
    body = value % thread.encode() if value and b"%s" in value else value
    headers = (("ce_id", f"{partition}-{offset}".encode()), ("ce_type", b"query.asked"), ("ce_tenant", tenant.encode()))
    return RawRecord("queries", partition, offset, f"{tenant}/{thread}".encode(), body, headers)


def ticket(offset: int, ticket_id: str) -> RawRecord:
    headers = (("ce_id", f"t{offset}".encode()), ("ce_type", b"ticket.opened"), ("ce_tenant", b"acme"))
    return RawRecord(
        "tickets", 0, offset, f"acme/{ticket_id}".encode(), b'{"ticket_id":"%s","body":"x"}' % ticket_id.encode(), headers
    )


@dataclass
class Published:
    """A publisher that acknowledges at once, or fails when told to."""

    records: list[OutboundRecord] = field(default_factory=list)
    fail: Callable[[OutboundRecord], Exception | None] = lambda _: None

    async def send(self, record: OutboundRecord) -> Awaitable[Any]:
        async def acknowledged() -> None:
            if error := self.fail(record):
                raise error
            self.records.append(record)

        return acknowledged()


@dataclass
class Graves:
    """Dead letters in memory."""

    records: list[OutboundRecord] = field(default_factory=list)
    down: bool = False

    async def bury(self, record: RawRecord, death: Death) -> None:
        if self.down:
            raise OutageError("no dead-letter topic")
        self.records.append(dead_letter(record, death, topic="dead-letters"))

    def reasons(self) -> list[str | None]:
        return [header_text(record.headers, REASON) for record in self.records]


@dataclass
class World:
    """One runtime and everything around it."""

    records: Sequence[RawRecord]
    handler: Handler | None = None
    batch_handler: BatchHandler | None = None
    config: RuntimeConfig = field(default_factory=lambda: RuntimeConfig(commit_interval_s=0.005, retry=FAST))
    inbox: MemoryInbox = field(default_factory=MemoryInbox)
    published: Published = field(default_factory=Published)
    graves: Graves = field(default_factory=Graves)
    rng: random.Random = field(default_factory=lambda: random.Random(1))

    def __post_init__(self) -> None:
        logs = defaultdict(list)
        for record in self.records:
            logs[record.topic, record.partition].append(record)
        self.consumer = MemoryConsumer(dict(logs), rng=self.rng)
        spec = TICKETS if self.batch_handler else QUERIES
        catalogue, clock = Catalogue(), SystemClock()
        self.runtime = Runtime(
            group="g",
            owner="w",
            routes=[Route(spec, self.handler, self.batch_handler, batch_size=4, batch_wait_s=0.01)],
            catalogue=catalogue,
            consumer=self.consumer,
            inbox=self.inbox,
            executor=Executor(self.published, catalogue, clock, "test", self.config.handler_timeout_s),
            dead_letters=self.graves,
            clock=clock,
            config=self.config,
        )

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.runtime.run)
            yield
            self.runtime.request_stop()

    async def until(self, condition: Callable[[], bool]) -> None:
        with anyio.fail_after(10):
            while not condition():
                await anyio.sleep(0.002)

    def all_committed(self) -> bool:
        return all(self.consumer.committed[key] == log[-1].offset + 1 for key, log in self.consumer.logs.items())

    async def run_to_the_end(self) -> None:
        async with self.running():
            await self.until(self.all_committed)


def failed(event: Event[Any]) -> AnswerFailed:
    return AnswerFailed(thread_id=event.payload.thread_id, query_id=event.id, attempt=1, code="refused")


async def test_records_are_handled_published_and_committed():
    async def handler(event: Event[Any]) -> AsyncGenerator[Payload]:
        yield failed(event)

    world = World([query(0, n, f"t{n}") for n in range(20)], handler)
    await world.run_to_the_end()
    assert len(world.published.records) == 20
    assert {record.topic for record in world.published.records} == {ANSWERS.name}
    assert world.consumer.stopped


async def test_an_offset_waits_for_the_acknowledgement_of_its_output():
    """P6."""

    async def handler(event: Event[Any]) -> AsyncGenerator[Payload]:
        yield failed(event)

    world = World([query(0, 0, "a")], handler)
    broken = [True]
    world.published.fail = lambda _: OutageError("no broker") if broken[0] else None
    async with world.running():
        await world.until(lambda: not world.runtime.board.gate.is_open)
        assert world.consumer.committed["queries", 0] == 0
        broken[0] = False
        await world.until(world.all_committed)
    assert not world.graves.records
    assert world.runtime.board.gate.is_open


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (query(0, 0, "a", value=b""), "empty_body"),
        (query(0, 0, "a", value=b"\xff\x00\xfe"), "bad_json"),
        (query(0, 0, "a", value=b'{"thread_id":"a"}'), "bad_payload"),
        (query(0, 0, "a", value=b'["text"]'), "bad_json"),
        (query(0, 0, "a", value=None), "unexpected_tombstone"),
        (RawRecord("queries", 0, 0, None, b"{}", ()), "missing_type"),
        (RawRecord("queries", 0, 0, b"\xff", b"{}", (("ce_type", b"\xff"),)), "not_utf8"),
        (RawRecord("queries", 0, 0, b"k", b"{}", (("ce_type", b"a"), ("ce_type", b"b"))), "ambiguous_header"),
        (RawRecord("queries", 0, 0, b"k", b"{}", (("ce_type", b"ticket.opened"), ("ce_tenant", b"acme"))), "unknown_type"),
    ],
)
async def test_bad_input_is_kept_byte_for_byte_and_the_partition_goes_on(record: RawRecord, reason: str):
    """P10."""
    seen = []

    async def handler(event: Event[Any]) -> AsyncGenerator[Payload]:
        seen.append(event.id)
        yield failed(event)

    world = World([record, query(0, 1, "next")], handler)
    await world.run_to_the_end()
    (grave,) = world.graves.records
    assert (grave.key, grave.value) == (record.key, record.value)
    assert grave.headers[: len(record.headers)] == record.headers
    assert world.graves.reasons() == [reason]
    assert seen == ["0-1"]


async def test_a_key_waits_for_its_own_retry_and_nobody_else_does():
    """P5."""
    order: list[str] = []
    tries = Counter[str]()

    async def handler(event: Event[Any]) -> AsyncGenerator[Payload]:
        tries[event.id] += 1
        if event.id == "0-0" and tries[event.id] < 4:
            raise UnavailableError("later")
        order.append(event.id)
        return
        yield

    world = World([query(0, 0, "a"), query(0, 1, "a"), query(0, 2, "b")], handler)
    await world.run_to_the_end()
    assert order == ["0-2", "0-0", "0-1"]
    assert tries["0-0"] == 4
    assert not world.graves.records


async def test_failures_are_bounded_and_end_as_a_dead_letter():
    async def handler(event: Event[Any]) -> AsyncGenerator[Payload]:
        raise KeyError(event.id)
        yield

    world = World([query(0, 0, "a")], handler)
    await world.run_to_the_end()
    assert world.graves.reasons() == ["unexpected"]
    assert b"0-0" not in dict(world.graves.records[0].headers)["__dlq.errors.message"]


async def test_a_dead_letter_that_is_not_acknowledged_holds_the_offset():
    """P6, P10."""

    async def handler(_: Event[Any]) -> AsyncGenerator[Payload]:
        raise MalformedError("no")
        yield

    world = World([query(0, 0, "a")], handler)
    world.graves.down = True
    async with world.running():
        await world.until(lambda: not world.runtime.board.gate.is_open)
        assert world.consumer.committed["queries", 0] == 0
        world.graves.down = False
        await world.until(world.all_committed)
    assert len(world.graves.records) == 1
    assert world.runtime.board.gate.is_open, "the outage is over, though no other record came"


async def test_an_outage_of_the_inbox_dead_letters_nothing_and_loses_nothing():
    """P1, P7; case 32 (iii)."""
    done = []

    async def handler(event: Event[Any]) -> AsyncGenerator[Payload]:
        done.append(event.id)
        return
        yield

    world = World([query(0, n, f"t{n}") for n in range(100)], handler)
    world.inbox.down = True
    async with world.running():
        await world.until(lambda: not world.runtime.board.gate.is_open)
        assert not done
        world.inbox.down = False
        await world.until(world.all_committed)
    assert len(done) == 100
    assert not world.graves.records


async def test_a_record_whose_worker_died_each_time_is_found_out():
    """DESIGN 3: the start is written before the handler, so a record that kills its process is dead-lettered."""

    async def handler(event: Event[Any]) -> AsyncGenerator[Payload]:
        yield failed(event)

    world = World([query(0, 0, "a")], handler)
    (claim_id,) = [work for work in [world_claim(world)] if work]
    await world.inbox.start([claim_id] * 1, owner="dead")
    for _ in range(FAST.crash_limit - 1):
        await world.inbox.start([claim_id], owner="dead")
    await world.run_to_the_end()
    assert world.graves.reasons() == ["crash_loop"]
    assert not world.published.records


def world_claim(world: World) -> str:
    from topics.envelope import decode

    return decode(world.records[0], catalogue=Catalogue()).claim_id


async def test_a_record_that_is_done_is_skipped_and_publishes_nothing():
    """P2."""

    async def handler(event: Event[Any]) -> AsyncGenerator[Payload]:
        yield failed(event)

    first = query(0, 0, "a")
    again = RawRecord(first.topic, 0, 1, first.key, first.value, first.headers)
    world = World([first, again], handler)
    await world.run_to_the_end()
    assert len(world.published.records) == 1
    assert world.runtime.board.counters.skipped == 1


async def test_a_busy_lease_spends_no_attempt():
    tries = Counter[str]()

    async def handler(event: Event[Any]) -> AsyncGenerator[Payload]:
        tries[event.id] += 1
        if tries[event.id] < 30:
            raise LeaseBusyError("held")
        yield failed(event)

    world = World([query(0, 0, "a")], handler)
    await world.run_to_the_end()
    assert len(world.published.records) == 1
    assert not world.graves.records


async def test_a_halt_stops_loudly_and_commits_nothing():
    async def handler(_: Event[Any]) -> AsyncGenerator[Payload]:
        raise ConfigError("wrong")
        yield

    world = World([query(0, 0, "a")], handler)
    with pytest.raises(ConfigError):
        await world.runtime.run()
    assert world.consumer.committed["queries", 0] == 0
    assert world.consumer.stopped


async def test_slots_bound_what_runs_and_a_full_partition_is_not_polled():
    """P7."""
    running, peak = 0, 0

    async def handler(_: Event[Any]) -> AsyncGenerator[Payload]:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await anyio.sleep(0.002)
        running -= 1
        return
        yield

    config = RuntimeConfig(slots=5, max_buffered_records=20, commit_interval_s=0.005, retry=FAST)
    world = World([query(0, n, f"t{n}") for n in range(300)], handler, config=config)
    await world.run_to_the_end()
    assert peak == 5
    assert world.runtime.board.counters.peak_buffered <= 20 + 7


async def test_one_bad_ticket_never_costs_its_batch():
    sizes = []

    async def handler(events: Sequence[Event[Any]]) -> AsyncGenerator[tuple[Event[Any], Payload | Exception]]:
        sizes.append(len(events))
        for event in reversed(events):
            if event.payload.ticket_id == "bad":
                yield event, MalformedError("bad", code="bad_model_output")
            else:
                summary = event.payload.ticket_id
                yield event, TicketTriaged(ticket_id=summary, intent="i", priority="low", needs_person=False, summary=summary)

    world = World([ticket(n, "bad" if n == 3 else f"t{n}") for n in range(9)], batch_handler=handler)
    await world.run_to_the_end()
    assert world.graves.reasons() == ["bad_model_output"]
    assert len(world.published.records) == 8
    assert all(record.key is not None and record.key.split(b"/")[1] in (record.value or b"") for record in world.published.records)
    assert max(sizes) > 1


def triaged(event: Event[Any]) -> TicketTriaged:
    name = event.payload.ticket_id
    return TicketTriaged(ticket_id=name, intent="i", priority="low", needs_person=False, summary=name)


async def test_a_ticket_of_a_batch_is_settled_when_it_ends_and_not_with_the_slowest_of_its_batch():
    """P2: a worker that dies meanwhile leaves only the others to be run again; and its lane goes on."""
    held, begun = anyio.Event(), list[list[str]]()

    async def handler(events: Sequence[Event[Any]]) -> AsyncGenerator[tuple[Event[Any], Payload | Exception]]:
        begun.append([event.id for event in events])
        for event in sorted(events, key=lambda event: event.payload.ticket_id == "slow"):
            if event.payload.ticket_id == "slow":
                await held.wait()
            yield event, triaged(event)

    world = World([ticket(0, "quick"), ticket(1, "slow"), ticket(2, "quick")], batch_handler=handler)
    async with world.running():
        await world.until(lambda: len(world.published.records) == 2)
        await world.until(lambda: world.runtime.board.counters.settled == 2)
        await world.until(lambda: world.consumer.committed["tickets", 0] == 1)
        assert begun == [["t0", "t1"], ["t2"]]
        held.set()
        await world.until(world.all_committed)
    assert len(world.published.records) == 3


async def test_a_ticket_of_a_batch_that_failed_is_tried_again_while_its_batch_still_runs():
    held, begun = anyio.Event(), list[list[str]]()

    async def handler(events: Sequence[Event[Any]]) -> AsyncGenerator[tuple[Event[Any], Payload | Exception]]:
        begun.append([event.id for event in events])
        is_first = len(begun) == 1
        for event in events:
            failed = event.payload.ticket_id == "busy" and is_first
            yield event, UnavailableError("busy") if failed else triaged(event)
        if is_first:
            await held.wait()

    world = World([ticket(0, "busy"), ticket(1, "other")], batch_handler=handler)
    async with world.running():
        await world.until(world.all_committed)
        assert begun == [["t0", "t1"], ["t0"]]
        held.set()
    assert (len(world.published.records), world.graves.reasons()) == (2, [])


async def test_a_stop_ends_what_a_batch_has_let_out_and_still_sends():
    """Nothing waits for the broker for ever, and nothing is left behind."""
    hangs = anyio.Event()

    async def handler(events: Sequence[Event[Any]]) -> AsyncGenerator[tuple[Event[Any], Payload | Exception]]:
        for event in events:
            yield event, triaged(event)
        await anyio.sleep_forever()

    async def send(_: OutboundRecord) -> Awaitable[Any]:
        hangs.set()
        return anyio.sleep_forever()

    config = RuntimeConfig(commit_interval_s=0.005, drain_s=0.05, retry=FAST)
    world = World([ticket(0, "a")], batch_handler=handler, config=config)
    world.published.send = send  # pyright: ignore[reportAttributeAccessIssue] -- a broker that never answers
    with anyio.fail_after(5):
        async with world.running():
            await hangs.wait()
    assert world.consumer.committed["tickets", 0] == 0


async def test_a_cancellation_that_leaks_out_of_a_handler_is_its_failure():
    async def handler(_: Event[Any]) -> AsyncGenerator[Payload]:
        raise asyncio.CancelledError
        yield

    world = World([query(0, 0, "a")], handler)
    await world.run_to_the_end()
    assert world.graves.reasons() == ["unexpected"]


async def test_a_handler_that_hangs_is_stopped_and_tried_again():
    tries = itertools.count()

    async def handler(event: Event[Any]) -> AsyncGenerator[Payload]:
        if next(tries) == 0:
            await anyio.sleep_forever()
        yield failed(event)

    config = RuntimeConfig(handler_timeout_s=0.02, commit_interval_s=0.005, retry=FAST)
    world = World([query(0, 0, "a")], handler, config=config)
    await world.run_to_the_end()
    assert len(world.published.records) == 1


async def test_work_of_an_ended_assignment_neither_publishes_nor_commits():
    """P6 and war story 2: drain first, fence second."""
    let_go = anyio.Event()
    first = [True]

    async def handler(event: Event[Any]) -> AsyncGenerator[Payload]:
        if first[0]:
            first[0] = False
            with anyio.CancelScope(shield=True):  # a handler that does not hear the cancellation in time
                await let_go.wait()
        yield failed(event)

    config = RuntimeConfig(revoke_drain_s=0.0, commit_interval_s=0.005, retry=FAST)
    world = World([query(0, 0, "a")], handler, config=config)
    async with world.running():
        await world.until(lambda: world.runtime.board.counters.peak_running == 1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(world.consumer.rebalance, [])
            await world.until(lambda: not world.runtime.board.assignments)
            let_go.set()
        assert not world.published.records
        assert world.consumer.committed["queries", 0] == 0
        await world.consumer.rebalance(world.consumer.logs)
        await world.until(world.all_committed)
    assert len(world.published.records) == 1


async def test_an_assignment_that_nobody_revoked_ends_with_the_next_one():
    """War story 24: whatever of an earlier rebalance was overtaken, its work is cut, and its partition is read by the new one."""
    released, started, ended = anyio.Event(), [], []

    async def handler(event: Event[Any]) -> AsyncGenerator[Payload]:
        started.append(event.id)
        if len(started) == 1:
            await released.wait()
        ended.append(event.id)
        yield failed(event)

    world = World([query(0, 0, "a"), query(0, 1, "a"), query(0, 2, "b")], handler)
    async with world.running():
        await world.until(lambda: ended == ["0-2"])
        world.consumer._positions = dict(world.consumer.committed)
        await world.runtime.on_assigned(list(world.consumer.logs))
        await world.until(world.all_committed)
        released.set()
    assert (started, ended) == (["0-0", "0-2", "0-0", "0-1"], ["0-2", "0-0", "0-1"])
    assert len(world.published.records) == 3


@pytest.mark.parametrize("seed", range(25))
async def test_nothing_is_lost_and_keys_keep_their_order_through_any_rebalances(seed: int):
    """P1, P5, P6 against random gaps, failures, refused commits, rebalances and drains."""
    rng = random.Random(seed)
    records = []
    for partition in range(3):
        offset = 0
        for _ in range(80):
            offset += rng.choice([1, 1, 1, 2, 5])
            records.append(query(partition, offset, f"p{partition}k{rng.randint(0, 9)}", tenant=rng.choice(["a", "b"])))
    running: set[str] = set()
    finished: list[tuple[str, int]] = []

    async def handler(event: Event[Any]) -> AsyncGenerator[Payload]:
        assert event.key not in running, "two records of one key at once"
        running.add(event.key)
        try:
            await anyio.sleep(rng.random() * 0.004)
            if rng.random() < 0.05:
                raise UnavailableError("sometimes")
            finished.append((event.key, event.record.offset))
        finally:
            running.discard(event.key)
        yield failed(event)

    config = RuntimeConfig(
        slots=8, max_buffered_records=30, commit_interval_s=0.003, revoke_drain_s=rng.choice([0.0, 0.005, 0.05]), retry=FAST
    )
    world = World(records, handler, config=config, rng=rng)
    world.consumer.refuse_commits = rng.choice([0.0, 0.2])
    partitions = sorted(world.consumer.logs)

    def committed_past_unfinished() -> list[RawRecord]:
        done = {(key.encode(), offset) for key, offset in finished}
        return [r for r in records if r.offset < world.consumer.committed[r.topic, r.partition] and (r.key, r.offset) not in done]

    async with world.running():
        for _ in range(8):
            await anyio.sleep(rng.random() * 0.02)
            assert not committed_past_unfinished()
            await world.consumer.rebalance(rng.sample(partitions, rng.randint(0, 3)))
            assert not committed_past_unfinished()
        world.consumer.refuse_commits = 0.0
        await world.consumer.rebalance(partitions)
        await world.until(world.all_committed)
    assert {(r.key, r.offset) for r in records} == {(key.encode(), offset) for key, offset in finished}
    firsts: dict[str, list[int]] = defaultdict(list)
    for key, offset in finished:
        if offset not in firsts[key]:
            firsts[key].append(offset)
    assert all(offsets == sorted(offsets) for offsets in firsts.values())
    assert not world.graves.records
    assert world.runtime.snapshot()["running"] == 0
