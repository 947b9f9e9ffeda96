"""A fault of ours while a record is read costs that record and nothing else."""

from typing import Any, cast

import pytest

from infra.clock import SystemClock
from infra.kafka.assignment import Assignment
from infra.kafka.board import Board, RuntimeConfig
from infra.kafka.intake import Intake
from infra.kafka.routes import Route
from tests.fakes.consumer import MemoryConsumer
from tests.fakes.inbox import MemoryInbox
from topics.catalogue import QUERIES, Catalogue
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
