"""P1, P5, P6: members come, go and are stopped in the middle of work, on a real group; the engine runs in this process."""

import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from typing import Any

import anyio
import pytest

from infra.kafka.consumer import GroupConsumer
from infra.kafka.retry import RetryPolicy
from tests.fakes.inbox import MemoryInbox
from tests.fakes.positions import MemoryPositions
from tests.stories.cluster import committed
from tests.stories.servers import KAFKA, Realm
from tests.stories.small_engine import SmallEngine, answer, quick
from topics.catalogue import QUERIES
from topics.envelope import Event
from topics.errors import UnavailableError
from topics.events import Payload, QueryAsked
from workers.client import open_client

pytestmark = [pytest.mark.story, pytest.mark.timeout(200), KAFKA]

PARTITIONS = range(QUERIES.partitions)


def member(realm: Realm, handler: Any, inbox: MemoryInbox, **changed: Any) -> SmallEngine:
    config = quick(**{"commit_interval_s": 0.1, "revoke_drain_s": 5.0, **changed})
    consumer = GroupConsumer(
        realm.settings.kafka(),
        group=group_of(realm),
        topics=[realm.catalogue.name(QUERIES)],
        memory=MemoryPositions(),
        revoke_drain_s=config.revoke_drain_s,
        session_timeout_s=6.0,
    )
    return SmallEngine(consumer, handler, config, inbox, catalogue=realm.catalogue)


def group_of(realm: Realm) -> str:
    return f"{realm.settings.group_prefix}.story"


async def ask(realm: Realm, event_ids: list[str], *, threads: int = 12) -> None:
    async with open_client(realm.settings, source="story") as client:
        for number, event_id in enumerate(event_ids):
            await client.publish(QueryAsked(thread_id=f"t{number % threads}", text="?"), tenant="acme", event_id=event_id)


async def positions(realm: Realm) -> dict[int, int]:
    topic = realm.catalogue.name(QUERIES)
    return {number: await committed(realm.settings.kafka(), group_of(realm), topic, number) or 0 for number in PARTITIONS}


async def until_shared(*members: SmallEngine) -> None:
    await members[0].until(
        lambda: all(one.partitions for one in members) and sum(one.partitions for one in members) == QUERIES.partitions, within_s=60
    )


async def until_committed(realm: Realm, count: int) -> None:
    with anyio.fail_after(60):
        while sum((await positions(realm)).values()) < count:
            await anyio.sleep(0.2)


class Handled:
    """A handler that counts, and does for some events what the test says."""

    def __init__(self, meanwhile: Callable[[str], Any] | None = None) -> None:
        self.started: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.order: dict[str, list[str]] = {}
        self._meanwhile = meanwhile

    async def __call__(self, event: Event[Any]) -> AsyncGenerator[Payload]:
        self.started[event.id] += 1
        if self._meanwhile is not None:
            await self._meanwhile(event.id)
        self.ended[event.id] += 1
        self.order.setdefault(event.key, []).append(event.id)
        yield answer(event)


async def test_a_handler_that_outlasts_the_drain_is_cut_and_runs_once_more_where_its_partition_went(servers):
    """Case 11 (i): nothing of it counts, the worker serves its other partitions, and the next owner does the record."""
    realm = await servers.realm("outlasting")
    released, ids = anyio.Event(), [f"q{number}" for number in range(24)]

    async def meanwhile(event_id: str) -> None:
        if event_id == "q0" and handled.started["q0"] == 1:
            await released.wait()

    handled = Handled(meanwhile)
    inbox = MemoryInbox()
    one, other = member(realm, handled, inbox, revoke_drain_s=0.5), member(realm, handled, inbox, revoke_drain_s=0.5)
    async with one.running():
        await ask(realm, ids)
        await one.until(lambda: handled.started["q0"] and sum(handled.ended.values()) >= 22, within_s=60)
        async with other.running():
            await until_shared(one, other)
            await one.until(lambda: set(ids) <= handled.ended.keys(), within_s=60)
            released.set()
            await until_committed(realm, len(ids))
            await ask(realm, ["after-0", "after-1", "after-2", "after-3", "after-4", "after-5"])
            await one.until(lambda: sum(handled.ended.values()) >= len(ids) + 6, within_s=60)
    assert (handled.started["q0"], handled.ended["q0"]) == (2, 1)
    assert {event_id: count for event_id, count in handled.started.items() if count > 1} == {"q0": 2}
    assert not one.letters.records + other.letters.records


async def test_a_retry_that_waits_through_a_rebalance_is_due_when_it_was_and_holds_its_key_only(servers):
    """War stories 13, 14: the wait is neither lost nor begun anew, and what waits behind it is not thrown away."""
    realm = await servers.realm("waiting")
    ids, failed_at_s, again_at_s = [f"q{number}" for number in range(24)], [], []
    delay_s = 8.0

    async def meanwhile(event_id: str) -> None:
        if event_id == "q0":
            (again_at_s if failed_at_s else failed_at_s).append(anyio.current_time())
            if not again_at_s:
                raise UnavailableError("not yet")

    handled = Handled(meanwhile)
    inbox = MemoryInbox()
    slow = RetryPolicy(base_s=delay_s, cap_s=delay_s)
    one, other = (member(realm, handled, inbox, retry=slow) for _ in range(2))
    one.runtime.board.jitter = other.runtime.board.jitter = lambda: 1.0
    async with one.running():
        await ask(realm, ids)
        await one.until(lambda: failed_at_s and sum(handled.ended.values()) == 22, within_s=60)
        async with other.running():
            await until_shared(one, other)
            await one.until(lambda: sum(handled.ended.values()) == 24, within_s=60)
            await until_committed(realm, len(ids))
    assert delay_s * 0.9 <= again_at_s[0] - failed_at_s[0]
    assert handled.started == {**dict.fromkeys(ids, 1), "q0": 2}
    assert handled.order["acme/t0"] == ["q0", "q12"], "the records of its key waited for it"


async def test_a_worker_that_is_stopped_in_the_middle_of_a_rebalance_ends_in_order(servers):
    """The drain of the rebalance and the drain of the stop are about the same work."""
    realm = await servers.realm("stopping")
    ids, released = [f"q{number}" for number in range(12)], anyio.Event()

    async def meanwhile(_: str) -> None:
        await released.wait()

    handled = Handled(meanwhile)
    inbox = MemoryInbox()
    one, other = member(realm, handled, inbox), member(realm, handled, inbox)
    async with anyio.create_task_group() as tasks:
        async with one.running():
            await ask(realm, ids)
            await one.until(lambda: len(handled.started) == len(ids), within_s=60)
            tasks.start_soon(other.runtime.run)
            await one.until(lambda: any(held.draining for held in one.runtime.board.assignments.values()), within_s=60)
            one.runtime.request_stop()
            released.set()
        await until_committed(realm, len(ids))
        await other.until(lambda: other.partitions == QUERIES.partitions, within_s=60)
        other.runtime.request_stop()
    assert handled.ended == dict.fromkeys(ids, 1), "what ran at the stop ended, counted, and was not run again"


@pytest.mark.parametrize("seed", [1, 2])
async def test_members_that_come_and_go_lose_nothing_repeat_nothing_that_ended_and_set_no_position_back(servers, figure, seed):
    """War stories 4, 8, 21: a storm of joins and leaves, while work is done all the time."""
    realm = await servers.realm(f"storm-{seed}")
    dice, ids = random.Random(seed), [f"q{number}" for number in range(300)]

    async def meanwhile(_: str) -> None:
        await anyio.sleep(dice.random() * 0.1)

    handled = Handled(meanwhile)
    inbox, seen, went_back, is_over = MemoryInbox(), dict.fromkeys(PARTITIONS, 0), [], []

    async def watch() -> None:
        while not is_over:
            for number, position in (await positions(realm)).items():
                if position < seen[number]:
                    went_back.append((number, seen[number], position))
                seen[number] = position
            await anyio.sleep(0.1)

    async def come_and_go(tasks: Any) -> None:
        for _ in range(6):
            engine = member(realm, handled, inbox)
            tasks.start_soon(engine.runtime.run)
            await anyio.sleep(0.5 + dice.random() * 2)
            engine.runtime.request_stop()

    steady = member(realm, handled, inbox)
    async with anyio.create_task_group() as watching, steady.running():
        watching.start_soon(watch)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, realm, ids)
            tasks.start_soon(come_and_go, tasks)
        await steady.until(lambda: handled.ended.keys() >= set(ids), within_s=90)
        await until_committed(realm, len(ids))
        is_over.append(True)
    figure("assignments of the steady member", steady.runtime._epoch)
    assert steady.runtime._epoch >= 3, "there was no storm"
    assert went_back == []
    assert handled.ended == dict.fromkeys(ids, 1)
    for key, order in handled.order.items():
        assert order == sorted(order, key=lambda one: int(one[1:])), key
