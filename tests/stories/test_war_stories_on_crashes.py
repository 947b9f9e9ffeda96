"""A record that kills its worker, among others that only run beside it."""

from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any

import anyio

from infra.kafka.dead_letter import ID, REASON, header_text
from tests.fakes.consumer import MemoryConsumer
from tests.fakes.inbox import MemoryInbox
from tests.stories.small_engine import Letters, SmallEngine, after, answer, log_of, question, quick
from topics.envelope import Event
from topics.errors import RejectedError
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


async def test_a_worker_that_dies_between_the_letter_and_its_commit_leaves_letters_of_one_id():
    """Case 32 (ii): the letter may come twice, and whoever reads them knows that it is one."""
    letters = Letters()

    async def handler(event: Event[Any]) -> AsyncGenerator[Payload]:
        if event.record.offset == 0:
            raise RejectedError("never", code="never")
        yield answer(event)

    class DiesOnceItIsBuried(MemoryInbox):
        async def settle(self, settled: Any) -> None:
            if any(state == "dead" for _, state in settled):
                await anyio.sleep_forever()
            await super().settle(settled)

    inbox = DiesOnceItIsBuried()
    first = SmallEngine(log_of([question(0, "bad"), question(1, "good")]), handler, inbox=inbox, letters=letters)
    async with first.killed():
        await first.until(lambda: letters.records)
    assert not first.consumer.committed[("queries", 0)]

    lasting = MemoryInbox()
    lasting.claims = inbox.claims
    second = SmallEngine(after(first.consumer), handler, inbox=lasting, letters=letters)
    await second.run_to_the_end()
    ids = [header_text(one.headers, ID) for one in letters.records]
    assert len(ids) == 2, "the first was written before the death, and the second because nobody could know"
    assert len(set(ids)) == 1
