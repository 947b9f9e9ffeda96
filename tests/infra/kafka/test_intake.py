"""A fault of ours while a record is read costs that record and nothing else."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any, cast

import anyio
import pytest

from infra.claims import Claim
from infra.clock import SystemClock
from infra.kafka.assignment import Assignment
from infra.kafka.board import Board, RuntimeConfig
from infra.kafka.intake import Intake
from infra.kafka.routes import Route
from tests.fakes.consumer import MemoryConsumer
from tests.fakes.inbox import MemoryInbox
from tests.infra.kafka.test_runtime import FAST, World, failed, query
from topics.catalogue import QUERIES, Catalogue
from topics.envelope import Event, decode
from topics.events import Payload
from topics.records import RawRecord


async def nobody(_: Any) -> Any:
    return
    yield


async def test_a_record_that_trips_its_reader_is_refused_and_the_partition_goes_on(monkeypatch: pytest.MonkeyPatch):
    """P10: an error that escaped here would stop the worker, and again after every restart."""

    def trip(record: RawRecord, **_: Any) -> Any:
        raise OverflowError(record.value)

    monkeypatch.setattr("infra.kafka.intake.decode", trip)
    routes = [Route(QUERIES, cast("Any", nobody))]
    board = Board(group="g", routes=routes, catalogue=Catalogue(), clock=SystemClock(), config=RuntimeConfig(), jitter=lambda: 0.0)
    board.assignments["queries", 0] = Assignment("queries", 0, 1)
    intake = Intake(board, consumer=MemoryConsumer({}), inbox=MemoryInbox())
    (work,) = intake._admit(("queries", 0), [RawRecord("queries", 0, 0, b"k", b"jane@example.test")])
    assert work.refusal is not None
    assert work.refusal.reason_code == "unexpected"
    assert "jane" not in str(work.refusal)


async def test_a_route_hears_of_a_record_at_once_and_may_trip_over_it():
    """A cancellation behind its query in one lane would be heard too late."""
    heard: list[str] = []

    def hear(event: Any) -> None:
        heard.append(event.id)
        raise KeyError(event.id)

    routes = [Route(QUERIES, cast("Any", nobody), on_arrival=hear)]
    board = Board(group="g", routes=routes, catalogue=Catalogue(), clock=SystemClock(), config=RuntimeConfig(), jitter=lambda: 0.0)
    board.assignments["queries", 0] = Assignment("queries", 0, 1)
    intake = Intake(board, consumer=MemoryConsumer({}), inbox=MemoryInbox())
    headers = (("ce_id", b"q1"), ("ce_type", b"query.asked"), ("ce_tenant", b"acme"))
    body = b'{"thread_id":"t","text":"hi"}'
    works = intake._admit(("queries", 0), [RawRecord("queries", 0, number, b"acme/t", body, headers) for number in range(2)])
    await intake._claim(works)
    assert heard == ["q1", "q1"]
    assert len(board.lanes["queries"]) == 2


async def test_headers_count_as_bytes_in_hand():
    """P7: a record may be nothing but headers."""
    go_on = anyio.Event()

    async def waiting(event: Event[Any]) -> AsyncGenerator[Payload]:
        await go_on.wait()
        yield failed(event)

    records = [query(0, n, f"t{n}") for n in range(40)]
    heavy = [replace(one, headers=(*one.headers, ("x-baggage", b"x" * 100_000))) for one in records]
    world = World(heavy, waiting, config=RuntimeConfig(max_buffered_bytes=1_000_000, retry=FAST, commit_interval_s=0.01))
    async with world.running():
        await world.until(lambda: world.runtime.board.counters.polls > 50)
        (held,) = world.runtime.board.assignments.values()
        assert held.buffered < 20  # ten, and those of the poll that reached the bound
        go_on.set()
        await world.until(world.all_committed)


async def test_a_due_time_of_another_clock_holds_nobody_up_for_longer_than_a_retry():
    async def handler(event: Event[Any]) -> AsyncGenerator[Payload]:
        yield failed(event)

    record = query(0, 0, "t")
    world = World([record], handler)
    claim_id = decode(record, catalogue=Catalogue()).claim_id
    world.inbox.claims[claim_id] = Claim("running", 1, 1, due_at_ms=2**42, first_failed_at_ms=1)
    await world.run_to_the_end()
    assert world.runtime.board.counters.handled == 1
