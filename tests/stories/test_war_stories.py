"""Faults that other engines met in the field, told again on ours. `docs/war-stories.md` says which test holds which story."""

import random
from collections import defaultdict
from collections.abc import AsyncGenerator
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from infra.kafka import runtime
from infra.kafka.retry import RetryPolicy
from tests.fakes.effects import MemoryEffectLedger
from tests.fakes.leases import MemoryLeases
from tests.stories.small_engine import SmallEngine, after, answer, log_of, question, quick
from topics.catalogue import SPECS, Catalogue
from topics.envelope import Event, decode
from topics.errors import UnavailableError
from topics.events import Payload
from workers.app import CLAIM_RETENTION_S, topology
from workers.parts import Parts

PARTITION = ("queries", 0)


async def test_story_2_a_completion_of_an_earlier_assignment_says_nothing_of_the_later_one(monkeypatch: pytest.MonkeyPatch):
    """The partition is back before its old handler ends: that handler's end must not finish the record of the new assignment."""
    monkeypatch.setattr(runtime, "CANCEL_WAIT_S", 0.0)
    ends = [anyio.Event(), anyio.Event()]
    began: list[int] = []

    async def handler(event: Event[Any]) -> AsyncGenerator[Payload]:
        began.append(event.record.offset)
        with anyio.CancelScope(shield=True):  # a handler that does not hear of it
            await ends[len(began) - 1].wait()
        if len(began) == 2:
            yield answer(event)

    engine = SmallEngine(log_of([question(0, "a")]), handler, quick(revoke_drain_s=0.0))
    async with engine.running():
        await engine.until(lambda: began == [0])
        await engine.consumer.rebalance([PARTITION])
        await engine.until(lambda: engine.held(PARTITION) == 1)
        ends[0].set()
        await engine.until(lambda: began == [0, 0])
        assert engine.consumer.committed[PARTITION] == 0, "the old end counted for the new assignment"
        ends[1].set()
        await engine.until(engine.all_committed)
    assert len(engine.outputs.records) == 1


async def test_story_3_an_end_that_came_too_late_runs_the_handler_again_and_the_effect_not():
    leases, effects, runs = MemoryLeases(), [], []
    ledger = MemoryEffectLedger(leases.fences)
    let_go = anyio.Event()

    async def handler(event: Event[Any]) -> AsyncGenerator[Payload]:
        runs.append(event.id)
        async with leases.hold(event.key) as lease:
            if (await ledger.begin(event.id, thread=event.key, fence=lease.fence)).state == "new":
                effects.append(event.id)
                await ledger.finish(event.id, result="paid", ok=True)
        if len(runs) == 1:
            await let_go.wait()
        yield answer(event)

    engine = SmallEngine(log_of([question(0, "a")]), handler, quick(revoke_drain_s=0.0))
    async with engine.running():
        await engine.until(lambda: effects)
        await engine.consumer.rebalance([PARTITION])
        await engine.until(engine.all_committed)
    assert (runs, effects) == (["0-0", "0-0"], ["0-0"])
    assert len(engine.outputs.records) == 1


async def test_story_4_a_partition_that_was_full_at_a_rebalance_goes_on_after_it():
    open_again = anyio.Event()

    async def handler(event: Event[Any]) -> AsyncGenerator[Payload]:
        await open_again.wait()
        yield answer(event)

    bounds = quick(slots=1, max_buffered_records=4, revoke_drain_s=0.0)
    engine = SmallEngine(log_of([question(offset, "a") for offset in range(40)]), handler, bounds)
    async with engine.running():
        for _ in range(3):
            await engine.until(lambda: engine.held(PARTITION) >= 4)
            await engine.consumer.rebalance([PARTITION])
        open_again.set()
        await engine.until(engine.all_committed)
    assert engine.counters.handled == 40


async def test_story_6_a_backlog_of_failures_is_bounded_like_any_other():
    async def handler(event: Event[Any]) -> AsyncGenerator[Payload]:
        raise UnavailableError("for all and for ever")
        yield answer(event)

    never_dead = RetryPolicy(base_s=0.001, cap_s=0.002, max_failures=10**9)
    engine = SmallEngine(
        log_of([question(offset, f"t{offset}") for offset in range(2_000)]),
        handler,
        quick(slots=8, max_buffered_records=50, retry=never_dead),
    )
    async with engine.killed():
        await engine.until(lambda: engine.counters.retried > 500)
        board = engine.runtime.board
        assert engine.counters.peak_buffered <= 50 + 7, "more than the bound and one poll"
        assert sum(len(lanes) for lanes in board.lanes.values()) <= 50 + 7
        assert engine.consumer.committed[PARTITION] == 0


@pytest.mark.parametrize("seed", range(10))
async def test_story_8_committed_positions_never_go_back_however_often_partitions_move(seed: int):
    rng = random.Random(seed)

    async def handler(event: Event[Any]) -> AsyncGenerator[Payload]:
        await anyio.sleep(rng.random() * 0.004)
        yield answer(event)

    records = [question(offset, f"t{rng.randint(0, 9)}", partition=number) for number in range(3) for offset in range(60)]
    engine = SmallEngine(log_of(records, rng=rng), handler, quick(slots=6, revoke_drain_s=rng.choice([0.0, 0.01])))
    partitions = sorted(engine.consumer.logs)
    async with engine.running():
        for _ in range(10):
            await anyio.sleep(rng.random() * 0.01)
            await engine.consumer.rebalance(rng.sample(partitions, rng.randint(0, 3)))
        await engine.consumer.rebalance(partitions)
        await engine.until(engine.all_committed)
    positions = defaultdict(list)
    for partition, position in engine.consumer.commits:
        positions[partition].append(position)
    assert all(found == sorted(found) for found in positions.values())


async def test_story_9_a_slow_record_holds_the_position_and_is_there_after_a_kill():
    async def handler(event: Event[Any]) -> AsyncGenerator[Payload]:
        if event.record.offset == 3 and not dead:
            await anyio.sleep_forever()
        yield answer(event)

    dead: list[str] = []
    engine = SmallEngine(log_of([question(offset, f"t{offset}") for offset in range(50)]), handler)
    async with engine.killed():
        await engine.until(lambda: engine.counters.handled == 49)
        await engine.until(lambda: engine.consumer.committed[PARTITION])
        assert engine.consumer.committed[PARTITION] == 3
    dead.append("the first member")
    successor = SmallEngine(after(engine.consumer), handler, inbox=engine.inbox)
    await successor.run_to_the_end()
    assert (successor.counters.handled, successor.counters.skipped) == (1, 46)


def test_story_17_nobody_consumes_the_topic_that_it_writes_dead_letters_to():
    catalogue = Catalogue("some.")
    nothing: Any = SimpleNamespace(**dict.fromkeys(one.name for one in fields(Parts)))
    nothing.settings, nothing.call_offs = SimpleNamespace(batch_size=1), SimpleNamespace(here=None)
    routes = [route for one in topology(nothing).values() for route in one]
    read = {name for route in routes for name in (catalogue.name(route.spec), catalogue.replay_name(route.spec))}
    written = {catalogue.name(spec) for spec in SPECS if spec.direction != "in"}
    assert read
    assert not read & written


async def test_story_22_what_runs_at_a_revocation_ends_and_counts_before_the_partition_goes():
    """Drain first, fence second: the other way round every deploy runs its records twice."""
    let_go = anyio.Event()
    runs: list[str] = []

    async def handler(event: Event[Any]) -> AsyncGenerator[Payload]:
        runs.append(event.id)
        await let_go.wait()
        yield answer(event)

    engine = SmallEngine(log_of([question(offset, f"t{offset}") for offset in range(3)]), handler, quick(revoke_drain_s=5.0))
    async with engine.running():
        await engine.until(lambda: len(runs) == 3)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.consumer.rebalance, [PARTITION])
            await engine.until(lambda: engine.runtime.board.assignments[PARTITION].draining)
            let_go.set()
        assert engine.consumer.committed[PARTITION] == 3
        await engine.until(engine.all_committed)
    assert sorted(runs) == ["0-0", "0-1", "0-2"]


def test_story_27_claims_are_kept_longer_than_anything_can_come_again():
    assert max(spec.retention_ms for spec in SPECS) < CLAIM_RETENTION_S * 1000


async def test_story_41_a_dead_owner_holds_nobody_up_and_its_open_effect_is_not_run_again():
    """Killed between the reservation and its effect's record: the next owner starts at once, and finds the effect in doubt."""
    leases, told, effects = MemoryLeases(), [], []
    ledger = MemoryEffectLedger(leases.fences)
    consumer = log_of([question(0, "a")])
    (record,) = consumer.logs[PARTITION]
    event = decode(record, catalogue=Catalogue())

    async def handler(event: Event[Any]) -> AsyncGenerator[Payload]:
        async with leases.hold(event.key) as lease:
            claim = await ledger.begin(event.id, thread=event.key, fence=lease.fence)
            told.append(claim.state)
            if claim.state == "new":
                effects.append(event.id)
        yield answer(event)

    engine = SmallEngine(consumer, handler)
    await engine.inbox.start([event.claim_id], owner="dead")
    async with leases.hold(event.key) as lease:
        await ledger.begin(event.id, thread=event.key, fence=lease.fence)
    await engine.run_to_the_end()
    assert (told, effects) == (["in_doubt"], [])
