"""P1, P10: a topic that is made anew has other records at the positions that the inbox knows."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

from infra.kafka.dead_letter import ID, header_text
from tests.fakes.inbox import MemoryInbox
from tests.infra.kafka.test_runtime import World, failed, query
from topics.catalogue import Catalogue
from topics.envelope import Event, decode
from topics.events import Payload
from topics.records import RawRecord


async def handler(event: Event[Any]) -> AsyncGenerator[Payload]:
    yield failed(event)


def known_by_position(*, at_ms: int) -> list[RawRecord]:
    bad, nameless = query(0, 0, "a", value=b"no JSON"), query(0, 1, "b")
    own = tuple(one for one in nameless.headers if one[0] != "ce_id")
    return [replace(bad, timestamp_ms=at_ms), replace(nameless, headers=own, timestamp_ms=at_ms)]


async def test_they_are_handled_and_buried_as_other_records_once():
    """They were skipped as done or dead, and nobody was told."""
    inbox = MemoryInbox()
    first, anew, again = (World(known_by_position(at_ms=at_ms), handler, inbox=inbox) for at_ms in (1, 2, 2))
    for world in (first, anew, again):
        await world.run_to_the_end()
    assert [world.graves.reasons() for world in (first, anew, again)] == [["bad_json"], ["bad_json"], []]
    assert [world.runtime.board.counters.handled for world in (first, anew, again)] == [1, 1, 0]
    assert len({header_text(world.graves.records[0].headers, ID) for world in (first, anew)}) == 2


def test_a_tombstone_is_another_one_too():
    """P8: erasures must not be skipped."""
    first, anew = (decode(RawRecord("articles", 0, 0, b"acme/a", None, (), at_ms), catalogue=Catalogue()) for at_ms in (1, 2))
    assert first.id == anew.id  # what is published because of it keeps its id
    assert first.claim_id != anew.claim_id
