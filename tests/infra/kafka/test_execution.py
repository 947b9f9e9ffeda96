"""A handler goes on only once the broker has what it yielded: what it writes elsewhere may rest on that."""

from collections.abc import AsyncGenerator, Awaitable, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from infra.clock import SystemClock
from infra.kafka.assignment import Assignment, Work
from infra.kafka.execution import AssignmentEndedError, Executor
from infra.kafka.routes import Route
from topics.catalogue import QUERIES, Catalogue
from topics.envelope import Event, decode
from topics.errors import OutageError, TimedOutError
from topics.events import AnswerCompleted, AnswerDelta, Payload
from topics.records import OutboundRecord, RawRecord

HEADERS = (("ce_id", b"q1"), ("ce_type", b"query.asked"), ("ce_tenant", b"acme"))
RECORD = RawRecord("queries", 0, 0, b"acme/t", b'{"thread_id":"t","text":"hi"}', HEADERS)
DELTA = AnswerDelta(thread_id="t", query_id="q1", attempt=1, sequence=0, text="x")
ENDING = AnswerCompleted(thread_id="t", query_id="q1", attempt=1, text="x")


class Slow:
    """Takes records at once and acknowledges them when it is let go, or refuses."""

    def __init__(self) -> None:
        self.taken = 0
        self.let_go = anyio.Event()
        self.error: Exception | None = None

    async def send(self, record: OutboundRecord) -> Awaitable[Any]:
        self.taken += 1

        async def acknowledged() -> None:
            await self.let_go.wait()
            if self.error:
                raise self.error

        assert record.topic == "answers"
        return acknowledged()


def work() -> Work:
    return Work(RECORD, Assignment("queries", 0, 1), decode(RECORD, catalogue=Catalogue()), starts=1)


def executor(*, timeout_s: float) -> Executor:
    return Executor(Slow(), Catalogue(), SystemClock(), "test", timeout_s)


@pytest.mark.parametrize("error", [None, OutageError("no broker")])
async def test_a_handler_waits_for_the_broker_behind_everything_but_a_piece_of_a_stream(error: Exception | None):
    """P1: a question is dropped from the held ones behind its answer; a crash must not find it gone and unanswered."""
    steps: list[str] = []

    async def handler(_: Event[Any]) -> AsyncGenerator[Payload]:
        yield DELTA
        steps.append("behind the piece")
        yield ENDING
        steps.append("behind the answer")

    publisher, outcomes = Slow(), dict[Work, Exception | None]()
    publisher.error = error
    executor = Executor(publisher, Catalogue(), SystemClock(), "test", 5.0)

    async def run() -> None:
        outcomes.update(await executor.run(Route(QUERIES, handler), [work()]))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        with anyio.fail_after(5):
            while publisher.taken < 2:
                await anyio.sleep(0.001)
        assert steps == ["behind the piece"]
        publisher.let_go.set()
    assert steps == ["behind the piece", *([] if error else ["behind the answer"])]
    assert list(outcomes.values()) == [error]


async def test_a_result_of_a_batch_whose_partition_went_meanwhile_is_not_published_and_its_neighbours_is():
    """P5: neither published nor committed by an owner of before."""
    publisher = Slow()
    publisher.let_go.set()
    stale, live = work(), work()

    async def handler(events: Sequence[Event[Any]]) -> AsyncGenerator[tuple[Event[Any], Payload | Exception]]:
        stale.assignment.live = False
        for event in events:
            yield event, ENDING

    run = Executor(publisher, Catalogue(), SystemClock(), "test", 5.0).run
    outcomes = await run(Route(QUERIES, batch_handler=handler), [stale, live])
    assert isinstance(outcomes[stale], AssignmentEndedError)
    assert (outcomes[live], publisher.taken) == (None, 1)


async def test_a_batch_that_tells_of_a_record_twice_has_failed():
    publisher = Slow()
    publisher.let_go.set()
    twice, other = work(), work()

    async def handler(events: Sequence[Event[Any]]) -> AsyncGenerator[tuple[Event[Any], Payload | Exception]]:
        yield events[0], ENDING
        yield events[0], ENDING

    run = Executor(publisher, Catalogue(), SystemClock(), "test", 5.0).run
    outcomes = await run(Route(QUERIES, batch_handler=handler), [twice, other])
    assert outcomes[twice] is None
    assert isinstance(outcomes[other], ValueError)
    assert publisher.taken == 1


async def sleeps(_: Event[Any]) -> AsyncGenerator[Payload]:
    await anyio.sleep_forever()
    yield ENDING


async def test_a_handler_that_takes_too_long_has_failed():
    one = work()
    outcomes = await executor(timeout_s=0.01).run(Route(QUERIES, sleeps), [one])
    assert isinstance(outcomes[one], TimedOutError)
    assert one.scope is None


async def test_a_handler_that_we_stop_has_no_outcome():
    """It is handed back, and spends no attempt."""
    one, outcomes = work(), dict[Work, Exception | None]()
    ended = anyio.Event()

    async def run() -> None:
        outcomes.update(await executor(timeout_s=5.0).run(Route(QUERIES, sleeps), [one]))
        ended.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        with anyio.fail_after(5):
            while one.scope is None:
                await anyio.lowlevel.checkpoint()
            one.scope.cancel()
            await ended.wait()
    assert outcomes == {}
    assert one.scope is None


async def test_a_handler_that_hears_of_its_end_too_late_has_its_outcome():
    async def finishes(_: Event[Any]) -> AsyncGenerator[Payload]:
        one.scope.cancel()
        return
        yield

    one = work()
    assert await executor(timeout_s=5.0).run(Route(QUERIES, finishes), [one]) == {one: None}


async def test_a_cancellation_of_the_caller_passes():
    one = work()
    with anyio.move_on_after(0.01) as scope:
        await executor(timeout_s=5.0).run(Route(QUERIES, sleeps), [one])
    assert scope.cancelled_caught
    assert one.scope is None


async def test_a_timeout_of_something_inside_a_handler_is_one_that_may_be_tried_again():
    async def times_out(_: Event[Any]) -> AsyncGenerator[Payload]:
        raise TimeoutError
        yield

    one = work()
    assert isinstance((await executor(timeout_s=5.0).run(Route(QUERIES, times_out), [one]))[one], TimedOutError)


async def with_a_task_group(_: Event[Any]) -> AsyncGenerator[Payload]:
    """A task group around a yield: whoever closes it gets the end of the generator back in a group."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.sleep_forever)
        yield ENDING
        tasks.cancel_scope.cancel()


async def test_a_handler_with_a_task_group_around_its_yield_fails_by_what_the_broker_said():
    """P7: what closes one handler is one record's failure, and does not end the process."""
    publisher, one = Slow(), work()
    publisher.error = OutageError("no broker")
    publisher.let_go.set()
    outcomes = await Executor(publisher, Catalogue(), SystemClock(), "test", 5.0).run(Route(QUERIES, with_a_task_group), [one])
    assert outcomes == {one: publisher.error}


async def test_a_handler_with_a_task_group_around_its_yield_may_take_too_long():
    one = work()
    outcomes = await executor(timeout_s=0.01).run(Route(QUERIES, with_a_task_group), [one])
    assert isinstance(outcomes[one], TimedOutError)


async def test_a_handler_with_a_task_group_around_its_yield_can_be_stopped():
    one, outcomes = work(), dict[Work, Exception | None]()

    async def run() -> None:
        outcomes.update(await executor(timeout_s=5.0).run(Route(QUERIES, with_a_task_group), [one]))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await anyio.wait_all_tasks_blocked()
        assert one.scope is not None
        one.scope.cancel()
    assert outcomes == {}


async def test_what_a_task_of_a_handler_raises_while_the_broker_is_waited_for_is_the_record_s_failure():
    async def fails_beside(_: Event[Any]) -> AsyncGenerator[Payload]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fails)
            yield ENDING

    async def fails() -> None:
        raise OutageError("no model")

    one = work()
    outcomes = await executor(timeout_s=5.0).run(Route(QUERIES, fails_beside), [one])
    assert isinstance(outcomes[one], OutageError)


async def test_several_failures_of_a_handler_s_tasks_are_one_failure_of_its_record():
    async def fails_twice(_: Event[Any]) -> AsyncGenerator[Payload]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fails, ValueError("one"))
            tasks.start_soon(fails, KeyError("two"))
            yield ENDING

    async def fails(error: Exception) -> None:
        raise error

    one = work()
    outcomes = await executor(timeout_s=5.0).run(Route(QUERIES, fails_twice), [one])
    assert isinstance(outcomes[one], ExceptionGroup)


async def test_what_is_meant_for_the_process_passes_in_a_group_too():
    async def leaves(_: Event[Any]) -> AsyncGenerator[Payload]:
        async with anyio.create_task_group():
            raise SystemExit
        yield ENDING

    with pytest.raises(BaseExceptionGroup) as caught:
        await executor(timeout_s=5.0).run(Route(QUERIES, leaves), [work()])
    assert caught.group_contains(SystemExit)
