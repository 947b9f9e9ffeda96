"""P10, P6: any bytes end in a dead letter that holds them unchanged, and the partition goes on."""

import json
from dataclasses import dataclass

import anyio
import pytest

from infra.kafka import provision
from infra.redis.client import connect
from infra.redis.keys import Keys
from infra.redis.search import RedisArticleIndex
from tests.stories.cluster import committed, delete_topic, end_of
from tests.stories.servers import KAFKA
from topics.catalogue import ARTICLES, DEAD_LETTERS, DECISIONS, QUERIES, TICKETS
from topics.events import ApprovalDecided, ArticlePublished, TicketOpened
from topics.records import Headers
from workers.dead_letters import Filter
from workers.demo.crew import crew

pytestmark = [pytest.mark.story, pytest.mark.timeout(240)]

TYPES = {TICKETS: "ticket.opened", ARTICLES: "article.published", QUERIES: "query.asked", DECISIONS: "approval.decided"}
GOOD = json.dumps(
    {
        "ticket_id": "same",
        "article_id": "same",
        "thread_id": "same",
        "title": "t",
        "body": "b",
        "text": "t",
        "approval_id": "a",
        "decision": "approve",
        "args_digest": "d",
        "approver": "p",
    }
).encode()  # right on every topic: fields that a topic does not know are passed over
INPUTS = [pytest.param(spec, id=spec.name) for spec in TYPES]


@dataclass(frozen=True)
class Poison:
    """A record nobody can do, and the reason it must be given."""

    code: str
    value: bytes | None
    headers: Headers
    key: bytes | None


def poisons(event_type: str, *, tenant: str, has_tombstones: bool) -> list[Poison]:
    key = f"{tenant}/same".encode()
    plain: Headers = (("ce_type", event_type.encode()), ("ce_tenant", tenant.encode()))
    odd: Headers = (
        ("x-twice", b"1"),
        ("x-null", None),
        ("x-twice", b"\x00\xff"),
        ("", b"no name"),
        ("X-Twice", b""),
        ("x-twice", b"1"),
    )
    structured = json.dumps({"specversion": "1.0", "id": "s", "source": "s", "type": "nobody.said", "tenant": tenant, "data": {}})
    found = [
        Poison("bad_json", b"\xff\xfe\x00 no event", plain, key),
        Poison("bad_json", b"[" * 50_000, plain, key),
        Poison("bad_json", b'"a text"', plain, key),
        Poison("empty_body", b"", plain, key),
        Poison("missing_type", GOOD, plain[1:] + odd, key),
        Poison("missing_type", b"\x00", (), None),
        Poison("unknown_type", GOOD, (("ce_type", b"nobody.said"), *plain[1:]), key),
        Poison("unknown_type", structured.encode(), (("content-type", b"application/cloudevents+json"),), key),
        Poison("bad_json", b"{", (("content-type", b"application/cloudevents+json"),), None),
        Poison("unknown_version", GOOD, (*plain, ("ce_dataschema", f"urn:sluice:schema:{event_type}:2".encode())), key),
        Poison("bad_payload", b'{"extra": 1}', plain + odd, b"\xff\x00 no text"),
        Poison("bad_tenant", GOOD, plain[:1], key),
        Poison("bad_tenant", GOOD, (*plain[:1], ("ce_tenant", b"a/b")), key),
        Poison("ambiguous_header", GOOD, (*plain, ("ce_type", b"other")), key),
        Poison("not_utf8", GOOD, (("ce_type", b"\xff"), *plain[1:]), key),
    ]
    if has_tombstones:
        return [*found, Poison("tombstone_without_key", None, odd, None), Poison("bad_key", None, (), b"no-slash")]
    return [*found, Poison("unexpected_tombstone", None, odd, None), Poison("unexpected_tombstone", None, plain, key)]


@pytest.mark.parametrize("spec", INPUTS)
async def test_poison_is_kept_to_the_byte_with_its_reason_and_the_partition_goes_on(servers, staffed, world_in, spec):
    async with world_in(staffed) as world:
        tenant, topic = world.tenant(), staffed.catalogue.name(spec)
        sent = poisons(TYPES[spec], tenant=tenant, has_tombstones=spec.tombstone is not None)
        if servers.is_kafka and spec.cleanup == "compact":
            sent = [poison for poison in sent if poison.key is not None]  # the broker takes no others there
        marked = [(poison, (("x-case", f"{tenant} {number}".encode()), *poison.headers)) for number, poison in enumerate(sent)]
        for poison, headers in marked:
            await world.write(topic, poison.key, poison.value, headers)
        # The same key, so the same partition, and behind them.
        await _publish_and_await_a_good_one(world, spec, tenant)

        found = {}
        with anyio.fail_after(60):
            while len(found) < len(marked):
                letters = await world.operations.load()
                found = {
                    letter.original_headers: letter
                    for letter in letters
                    if letter.topic == topic and _case_of(letter).startswith(tenant)
                }
        kept = {headers: (letter.record.key, letter.record.value, letter.reason) for headers, letter in found.items()}
        assert kept == {headers: (poison.key, poison.value, poison.code) for poison, headers in marked}
        assert {(letter.state, letter.replays) for letter in found.values()} == {("open", 0)}
        assert not [letter.message for letter in found.values() if "no event" in letter.message]
        assert await world.operations.discard(Filter(ids=tuple(letter.id for letter in found.values())), reason="poison of a story")


def _case_of(letter) -> str:
    return dict(letter.original_headers).get("x-case", b"").decode()


async def _publish_and_await_a_good_one(world, spec, tenant: str) -> None:
    if spec is QUERIES:
        await world.ask(tenant, "Hello there", thread="same")
        await world.until_ended()
    elif spec is TICKETS:
        await world.client.publish(
            TicketOpened(ticket_id="same", body="My card was stolen"), tenant=tenant, event_id=f"{tenant}-good"
        )
        await world.until(lambda: (tenant, "same") in world.witness.triaged, "triage of the good ticket")
    elif spec is DECISIONS:
        nobody = ApprovalDecided(approval_id="none", thread_id="same", decision="approve", args_digest="d", approver="story")
        await world.client.publish(nobody, tenant=tenant, event_id=f"{tenant}-good")
        await world.until(lambda: f"{tenant}-good" in world.witness.refused, "the outcome of the good decision")
    else:
        client = connect(world.realm.settings.redis_url, timeout_s=5.0)
        index = RedisArticleIndex(client, Keys(world.realm.settings.redis_prefix))
        before = await index.count()
        article = ArticlePublished(article_id="same", title="Cards", body="A stolen card is blocked at once.")
        await world.client.publish(article, tenant=tenant, event_id=f"{tenant}-good")
        with anyio.fail_after(30):
            while await index.count() == before:
                await anyio.sleep(0.1)
        await client.aclose()


async def test_odd_but_honest_records_are_done(staffed, world_in):
    """No key, no id, repeated and null headers of others, unknown fields, capitals in header names: none of it is a fault."""
    async with world_in(staffed) as world:
        tenant, topic = world.tenant(), staffed.catalogue.name(QUERIES)
        world.asked[f"{tenant}-odd"] = tenant
        body = {"thread_id": "odd", "text": "Hello?", "colour": "blue", "nested": {"a": [None]}}
        headers: Headers = (
            ("CE_Type", b"query.asked"),
            ("ce_tenant", tenant.encode()),
            ("ce_id", f"{tenant}-odd".encode()),
            ("ce_id", f"{tenant}-odd".encode()),
            ("reply_to", b"dead-letters"),
            ("x-null", None),
            ("x-bytes", b"\x00\xff"),
        )
        await world.write(topic, None, json.dumps(body).encode(), headers)
        await world.write(topic, None, json.dumps(body | {"thread_id": "nameless"}).encode(), headers[:2])
        await world.until_ended()

        # The one without an id is known by its position.
        def positions() -> list[str]:
            return [one for one in world.witness.streams if one.startswith(f"{topic}/")]

        await world.until(
            lambda: bool(positions()) and world.witness.streams[positions()[0]].ended, "the answer to the nameless query"
        )
        answered = [event for event in world.heard if event.payload.TYPE == "answer.completed"]
        assert {event.record.key for event in answered} == {f"{tenant}/odd".encode(), f"{tenant}/nameless".encode()}


@KAFKA
async def test_a_missing_dead_letter_topic_holds_the_offset_until_it_is_back(servers, world_in):
    realm = await servers.realm("letterless")
    kafka, catalogue = realm.settings.kafka(), realm.catalogue
    topic, letters, group = catalogue.name(QUERIES), catalogue.name(DEAD_LETTERS), f"{realm.settings.group_prefix}.query"
    await delete_topic(kafka, letters)
    async with world_in(realm) as world, crew(realm.data_dir) as members:
        await members.start("lonely", ["query"])
        tenant = world.tenant()
        before = await world.ask(tenant, "Are you there?", thread="same")
        await world.until_ended(before)
        number = next(event for event in world.heard if event.payload.TYPE == "answer.completed").record.partition
        await world.write(
            topic, f"{tenant}/same".encode(), b"poison", (("ce_type", b"query.asked"), ("ce_tenant", tenant.encode()))
        )
        poisoned_at = await end_of(kafka, topic, number) - 1
        behind = await world.ask(tenant, "And now?", thread="same")
        log = realm.data_dir / "logs" / "lonely.log"
        with anyio.fail_after(90):
            while "dead_letter_not_acknowledged" not in log.read_text():
                await anyio.sleep(0.5)
        assert await committed(kafka, group, topic, number) == poisoned_at

        await provision.apply(kafka, catalogue, replication_factor=1)
        await world.until_ended(behind)
        found = await world.letters(1)
        with anyio.fail_after(30):
            while await committed(kafka, group, topic, number) != poisoned_at + 2:
                await anyio.sleep(0.2)
        assert [(one.reason, one.topic, one.offset, one.record.value) for one in found] == [
            ("bad_json", topic, str(poisoned_at), b"poison")
        ]
        assert await end_of(kafka, letters, found[0].record.partition) == 1
