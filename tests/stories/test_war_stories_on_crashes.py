"""A record that kills its worker, among others that only run beside it."""

from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any

import anyio

from infra.kafka.dead_letter import REASON, header_text
from tests.fakes.consumer import MemoryConsumer
from tests.fakes.inbox import MemoryInbox
from tests.stories.small_engine import Letters, SmallEngine, after, answer, log_of, question, quick
from topics.envelope import Event
from topics.events import Payload

NEIGHBOURS = 12
MOST_DEATHS = 12


def all_done(consumer: MemoryConsumer) -> bool:
    return all(consumer.committed[key] == log[-1].offset + 1 for key, log in consumer.logs.items())


async def test_story_33_a_record_that_kills_is_given_up_and_those_that_ran_beside_it_are_done():
    """P1: whoever is at work when a process dies has one more start without an end, as the killer has."""
    died = anyio.Event()
    done: Counter[str] = Counter()

    async def handler(event: Event[Any]) -> AsyncGenerator[Payload]:
        if event.payload.thread_id == "killer":
            await anyio.sleep(0.01)
            died.set()
            await anyio.sleep_forever()
        await anyio.sleep(0.05)  # longer than the killer takes
        done[event.payload.thread_id] += 1
        yield answer(event)

    threads = [*(f"t{number}" for number in range(NEIGHBOURS)), "killer"]
    consumer = log_of([question(offset, thread) for offset, thread in enumerate(threads)])
    inbox, letters = MemoryInbox(), Letters()
    deaths = 0
    while deaths < MOST_DEATHS and not all_done(consumer):
        died = anyio.Event()
        engine = SmallEngine(consumer, handler, quick(slots=32), inbox, letters=letters)
        async with engine.killed():
            await engine.until(lambda died=died, engine=engine: died.is_set() or engine.all_committed())
        deaths += died.is_set()
        consumer = after(consumer)
    assert [(one.key, header_text(one.headers, REASON)) for one in letters.records] == [(b"acme/killer", "crash_loop")]
    assert set(done) == set(threads) - {"killer"}
    assert deaths == 5, "as many as the limit, and no more"
