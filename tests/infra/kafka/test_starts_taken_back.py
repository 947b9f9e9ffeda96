"""P1, P7: a start that ended without a death is taken back, however its worker ended it, or good records become crash loops."""

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest

from infra.claims import Claim
from tests.fakes.inbox import MemoryInbox
from tests.infra.kafka.test_runtime import World, failed, query, ticket
from topics.envelope import Event
from topics.errors import ConfigError, HaltError, OutageError
from topics.events import Payload


async def quick(event: Event[Any]) -> AsyncGenerator[Payload]:
    yield failed(event)


class LateInbox(MemoryInbox):
    """A server whose answer takes a moment: a start is written before anybody hears of it."""

    async def start(self, claim_ids: Any, *, owner: str) -> Any:
        counts = await super().start(claim_ids, owner=owner)
        await anyio.sleep(0.02)
        return counts


@pytest.mark.parametrize("kind", [MemoryInbox, LateInbox])
async def test_what_ran_beside_a_halt_is_not_to_blame_however_often_its_worker_is_started(kind: type[MemoryInbox]):
    """The position of one partition is gone, and the platform starts the worker again and again."""

    async def slow(event: Event[Any]) -> AsyncGenerator[Payload]:
        await anyio.sleep_forever()
        yield failed(event)

    records, inbox, letters = [query(0, n, f"t{n}") for n in range(3)], kind(), []
    for _ in range(6):
        world = World(records, slow, inbox=inbox)
        poll = world.consumer.poll

        async def halt_at_work(full: Any, world: World = world, poll: Any = poll) -> Any:
            if len(world.runtime.board.in_flight) == len(records):
                raise HaltError("the position of another partition is gone", code="offset_lost")
            return await poll(full)

        world.consumer.poll = halt_at_work
        with pytest.raises(HaltError), anyio.fail_after(10):
            await world.runtime.run()
        letters += world.graves.reasons()
    assert set(await inbox.look(list(inbox.claims))) <= {Claim()}
    mended = World(records, quick, inbox=inbox)
    await mended.run_to_the_end()
    assert letters + mended.graves.reasons() == []
    assert mended.runtime.board.counters.handled == len(records)


async def test_what_an_outage_hands_back_again_and_again_is_no_crash_loop():
    """A server that is full whenever a start is to be taken back: what is owed is remembered."""

    class FullInbox(MemoryInbox):
        async def release(self, claim_ids: Any) -> None:
            raise OutageError(f"Redis cannot take back {claim_ids}: OutOfMemoryError")

    tries = 0

    async def full(event: Event[Any]) -> AsyncGenerator[Payload]:
        nonlocal tries
        tries += 1
        if tries <= 6:
            raise OutageError("Redis cannot serve: OutOfMemoryError")  # its checkpoint
        yield failed(event)

    world = World([query(0, 0, "t")], full, inbox=FullInbox())
    await world.run_to_the_end()
    assert world.graves.reasons() == []
    assert world.runtime.board.counters.handled == 1


@pytest.mark.parametrize("batch", [False, True])
async def test_a_halt_by_a_record_is_no_death_of_it_or_of_its_batch(batch: bool):
    """A wrong setting: it is mended, and the platform started the worker many times until then."""
    inbox, letters = MemoryInbox(), []

    async def halting(event: Any) -> AsyncGenerator[Any]:
        raise ConfigError("the index has vectors of another length")
        yield event

    records = [ticket(n, f"t{n}") for n in range(4)] if batch else [query(0, n, f"t{n}") for n in range(4)]
    for _ in range(6):
        world = World(records, None if batch else halting, halting if batch else None, inbox=inbox)
        with pytest.raises(ConfigError), anyio.fail_after(10):
            await world.runtime.run()
        letters += world.graves.reasons()
    assert letters == []
    assert set(await inbox.look(list(inbox.claims))) <= {Claim()}
