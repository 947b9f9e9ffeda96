"""P1, P7: a start that ended without a death is taken back, however its worker ended it, or good records become crash loops."""

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest

from infra.claims import Claim
from tests.fakes.inbox import MemoryInbox
from tests.infra.kafka.test_runtime import World, failed, query
from topics.envelope import Event
from topics.errors import HaltError, OutageError
from topics.events import Payload


async def quick(event: Event[Any]) -> AsyncGenerator[Payload]:
    yield failed(event)


async def test_what_ran_beside_a_halt_is_not_to_blame_however_often_its_worker_is_started():
    """The position of one partition is gone, and the platform starts the worker again and again."""

    async def slow(event: Event[Any]) -> AsyncGenerator[Payload]:
        await anyio.sleep_forever()
        yield failed(event)

    records, inbox, letters = [query(0, n, f"t{n}") for n in range(3)], MemoryInbox(), []
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
