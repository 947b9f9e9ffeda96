"""Case 13: a topic gets more partitions while its records are worked on."""

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from aiokafka.partitioner import murmur2

from infra.kafka.consumer import GroupConsumer
from infra.kafka.reading import scan
from tests.fakes.inbox import MemoryInbox
from tests.fakes.positions import MemoryPositions
from tests.stories.servers import KAFKA, Realm
from tests.stories.small_engine import SmallEngine, answer, quick
from topics.catalogue import QUERIES, TICKETS, TRIAGE
from topics.envelope import Event, decode
from topics.events import Payload, TicketClosed, TicketOpened
from workers.client import open_client
from workers.demo.crew import crew
from workers.offsets import Offsets

pytestmark = [pytest.mark.story, pytest.mark.timeout(200), KAFKA]


async def add_a_partition(realm: Realm, topic: str, *, to: int) -> None:
    admin: Any = AIOKafkaAdminClient(bootstrap_servers=realm.settings.kafka_bootstrap)
    await admin.start()
    await admin.create_partitions({topic: NewPartitions(to)})
    await admin.close()


async def write(realm: Realm, topic: str, partition: int, *event_ids: str) -> None:
    """Straight to a partition, as a producer does that knows of it before its readers do."""
    async with AIOKafkaProducer(bootstrap_servers=realm.settings.kafka_bootstrap) as producer:
        for event_id in event_ids:
            headers = [("ce_id", event_id.encode()), ("ce_type", b"query.asked"), ("ce_tenant", b"acme")]
            await producer.send_and_wait(
                topic, b'{"thread_id":"%s","text":"?"}' % event_id.encode(), key=b"acme/k", partition=partition, headers=headers
            )


@pytest.mark.parametrize("rule", ["earliest", "latest"])
async def test_every_record_of_a_new_partition_is_done_those_before_its_discovery_too(servers, rule):
    realm = await servers.realm(f"grown-{rule}")
    topic, done = realm.catalogue.name(QUERIES), []

    async def handler(event: Event[Any]) -> AsyncGenerator[Payload]:
        done.append(event.id)
        yield answer(event)

    consumer = GroupConsumer(
        realm.settings.kafka(),
        group=f"{realm.settings.group_prefix}.story",
        topics=[topic],
        memory=MemoryPositions(),
        new_group_reads_from=rule,
    )
    engine = SmallEngine(consumer, handler, quick(commit_interval_s=0.1), MemoryInbox(), catalogue=realm.catalogue)
    async with engine.running():
        await engine.until(lambda: len(consumer.reached()) == QUERIES.partitions, within_s=60)
        await write(realm, topic, 0, "old")
        await add_a_partition(realm, topic, to=QUERIES.partitions + 1)
        await write(realm, topic, QUERIES.partitions, "unseen-1", "unseen-2")
        await engine.until(lambda: engine.partitions == QUERIES.partitions + 1, within_s=60)
        await write(realm, topic, QUERIES.partitions, "seen")
        await engine.until(lambda: len(done) >= 4, within_s=60)
    assert sorted(done) == ["old", "seen", "unseen-1", "unseen-2"]
    assert [one for one in done if "seen" in one] == ["unseen-1", "unseen-2", "seen"], "in order inside the partition"


async def test_a_closed_ticket_that_overtakes_its_opening_harms_nothing(servers, world_in):
    """Its key moved: `closed` is on another partition, and done while `opened` waits. We keep no state of a ticket to be spoilt."""
    realm = await servers.realm("moved")
    topic, group = realm.catalogue.name(TICKETS), f"{realm.settings.group_prefix}.ingestion"
    async with world_in(realm) as world, crew(realm.data_dir) as members:
        ticket = next(name for number in range(99) if moves(f"{world.tenant()}/{(name := f'ticket-{number}')}", TICKETS.partitions))
        await members.start("worker", ["ingestion"])
        await world.model("pace", {"first_token_ms": 1500, "tokens_per_s": 0})
        async with open_client(realm.settings, source="story") as client:
            opened = TicketOpened(ticket_id=ticket, body="My card was stolen, please block it now!")
            await client.publish(opened, tenant=world.tenant(), event_id="opened")
        await add_a_partition(realm, topic, to=TICKETS.partitions + 1)
        async with open_client(realm.settings, source="story") as client:
            await client.publish(TicketClosed(ticket_id=ticket), tenant=world.tenant(), event_id="closed")
        await world.until(lambda: (world.tenant(), ticket) in world.witness.triaged, f"the triage of {ticket}")
        with anyio.fail_after(90):
            while any(one.lag != 0 for one in await Offsets(realm.settings, "story").show(group)):
                await anyio.sleep(0.3)
        async with scan(realm.settings.kafka(), [topic]) as records:
            places = {decode(one, catalogue=realm.catalogue).id: one.partition async for one in records}
        assert places["opened"] != places["closed"]
        async with scan(realm.settings.kafka(), [realm.catalogue.name(TRIAGE)]) as records:
            told = [decode(record, catalogue=realm.catalogue).payload async for record in records]
        assert [one.ticket_id for one in told] == [ticket]
        assert await world.letters(0) == []


def moves(key: str, partitions: int) -> bool:
    """Whether a key is on another partition once there is one more."""
    number = murmur2(key.encode()) & 0x7FFFFFFF
    return number % partitions != number % (partitions + 1)
