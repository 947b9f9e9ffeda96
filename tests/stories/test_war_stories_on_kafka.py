"""War stories whose cause is in the group protocol: only a real broker can tell them."""

from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest

from infra.kafka.consumer import GroupConsumer
from tests.fakes.inbox import MemoryInbox
from tests.stories.servers import KAFKA, Realm
from tests.stories.small_engine import SmallEngine, answer, quick
from topics.catalogue import QUERIES
from topics.envelope import Event
from topics.events import Payload, QueryAsked
from workers.client import open_client

pytestmark = [pytest.mark.story, pytest.mark.timeout(120)]

SESSION_S = 6.0  # the least that a broker takes


def member(realm: Realm, handler: Any, inbox: MemoryInbox) -> SmallEngine:
    topics = [realm.catalogue.name(QUERIES)]
    consumer = GroupConsumer(
        realm.settings.kafka(), group=f"{realm.settings.group_prefix}.story", topics=topics, session_timeout_s=SESSION_S
    )
    return SmallEngine(consumer, handler, quick(commit_interval_s=0.2), inbox, catalogue=realm.catalogue)


@KAFKA
async def test_story_11_a_handler_longer_than_the_session_runs_once_and_nobody_leaves_the_group(servers):
    realm = await servers.realm("patient")
    started: Counter[str] = Counter()

    async def handler(event: Event[Any]) -> AsyncGenerator[Payload]:
        started[event.id] += 1
        if event.id == "slow":
            await anyio.sleep(SESSION_S * 1.5)
        yield answer(event)

    inbox = MemoryInbox()
    one, other = member(realm, handler, inbox), member(realm, handler, inbox)
    async with one.running(), other.running():
        await one.until(
            lambda: one.partitions and other.partitions and one.partitions + other.partitions == QUERIES.partitions, within_s=30
        )
        epochs = one.epochs | other.epochs
        async with open_client(realm.settings, source="story") as client:
            for number, event_id in enumerate(["slow", *(f"quick-{number}" for number in range(10))]):
                await client.publish(QueryAsked(thread_id=f"t{number}", text="?"), tenant="acme", event_id=event_id)
        await one.until(lambda: len(one.outputs.records) + len(other.outputs.records) == 11, within_s=30)
        assert one.epochs | other.epochs == epochs, "somebody left the group, and every partition was assigned anew"
    assert set(started.values()) == {1}
    assert not one.letters.records + other.letters.records
