"""Tickets in batches and articles: each result is its ticket's own, and what needs no model asks none."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from flows.triage import Triage
from infra.kafka.dead_letter import dead_letter
from infra.redis.keys import RETIRED_TTL
from tests.fakes.article_index import MemoryIndex, WordEmbedder
from tests.fakes.examples import MemoryExamples
from tests.infra.kafka.test_dead_letter import DEATH
from tests.workers.desk import event
from topics.catalogue import Catalogue
from topics.envelope import Event, decode, encode
from topics.errors import MalformedError, OutageError, UnavailableError
from topics.events import (
    ArticlePublished,
    ArticleRetired,
    Payload,
    TicketClosed,
    TicketCommented,
    TicketErased,
    TicketOpened,
    TicketTriaged,
)
from topics.example import Example
from topics.records import RawRecord
from workers.app import CLAIM_RETENTION_S
from workers.dead_letters import edited_record, replay_record, view
from workers.ingestion import handle_article, handle_tickets, tell_loss


class BackwardsTriage:
    """Gives results last first; a ticket whose body is an error's name fails with it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.closed = False

    async def triage(
        self, tickets: Sequence[tuple[str, TicketOpened]], _config: Any = None
    ) -> AsyncGenerator[tuple[str, Payload | Exception]]:
        try:
            for key, ticket in reversed(tickets):
                self.asked.append(ticket.ticket_id)
                failed = {"bad": MalformedError("bad", code="bad_model_output"), "down": UnavailableError("down")}.get(ticket.body)
                found = TicketTriaged(
                    ticket_id=ticket.ticket_id,
                    intent="i",
                    priority="low",
                    needs_person=False,
                    summary=ticket.body,
                    prompt_version="v1+00c0ffee",
                )
                yield key, failed or found
        finally:
            self.closed = True


def ticket(payload: Any, *, tenant: str = "acme") -> Event[Any]:
    return Event(f"e-{payload.ticket_id}", "crm", tenant, f"{tenant}/{payload.ticket_id}", payload, event("x", payload).record)


def opened(ticket_id: str, body: str = "x", *, tenant: str = "acme") -> Event[Any]:
    return ticket(TicketOpened(ticket_id=ticket_id, body=body), tenant=tenant)


async def results(
    events: Sequence[Event[Any]], triage: BackwardsTriage, examples: MemoryExamples | None = None
) -> list[tuple[Event[Any], Any]]:
    async with aclosing(handle_tickets(events, triage=cast("Triage", triage), examples=examples or MemoryExamples())) as found:
        return [one async for one in found]


async def test_one_bad_ticket_never_costs_its_batch_and_results_keep_their_ticket():
    batch = [opened("1"), opened("2", "bad"), opened("3", "down"), opened("1", tenant="globex")]
    found = {one.key: (one, result) for one, result in await results(batch, BackwardsTriage())}
    assert [found[one.key][0] for one in batch] == batch
    assert [type(found[one.key][1]).__name__ for one in batch] == [
        "TicketTriaged",
        "MalformedError",
        "UnavailableError",
        "TicketTriaged",
    ]
    assert found["acme/1"][1].ticket_id == "1"


@pytest.mark.parametrize(
    "payload", [TicketClosed(ticket_id="2"), TicketErased(ticket_id="2"), TicketCommented(ticket_id="2", body="any news?")]
)
async def test_only_new_tickets_ask_the_model(payload: Payload):
    """Case 2: a tombstone makes no model call."""
    triage = BackwardsTriage()
    found = await results([opened("1"), ticket(payload), opened("3")], triage)
    assert triage.asked == ["3", "1"]
    assert [one.payload.ticket_id for one, _ in found] == ["3", "1"]
    assert await results([ticket(payload)], triage) == []


async def test_the_log_says_how_many_tickets_were_triaged_with_which_prompt():
    with capture_logs() as logs:
        await results([opened("1"), opened("2"), opened("3", "down")], BackwardsTriage())
        tell_loss("acme", UnavailableError("no vectors"))
    assert logs == [
        {"event": "triaged", "log_level": "info", "prompt_versions": {"v1+00c0ffee": 2}},
        {"event": "examples_lost", "log_level": "warning", "tenant": "acme", "code": "unavailable", "why": "no vectors"},
    ]


async def test_a_batch_that_is_left_early_ends_its_runs():
    triage = BackwardsTriage()
    handled = handle_tickets([opened("1"), opened("2")], triage=cast("Triage", triage), examples=MemoryExamples())
    async with aclosing(handled) as found:
        async for _ in found:
            break
    assert triage.closed


def example(ticket_id: str, tenant: str) -> Example:
    return Example(tenant, ticket_id, "", "my card is gone", "lost_or_stolen_card", "high", needs_person=True, summary="A card.")


async def test_an_erased_ticket_takes_the_example_that_was_made_of_it_along_and_no_other():
    examples = MemoryExamples()
    for tenant in ("acme", "globex"):
        await examples.add(tenant, [example("1", tenant), example("2", tenant)], [(1.0,), (1.0,)])
    erased = ticket(TicketErased(ticket_id="1"))
    assert await results([erased, opened("3")], triage := BackwardsTriage(), examples) != []
    assert triage.asked == ["3"]
    assert [one.example_id for one in await examples.of("acme")] == ["2"]
    assert [one.example_id for one in await examples.of("globex")] == ["1", "2"]
    assert await results([erased], BackwardsTriage(), examples) == []


async def test_an_erasure_that_fails_is_tried_again_and_costs_no_other_ticket():
    examples = MemoryExamples()
    examples.error = OutageError("redis is down")
    erased = ticket(TicketErased(ticket_id="1"))
    found = await results([erased, opened("3")], BackwardsTriage(), examples)
    assert [(one, type(result)) for one, result in found[:1]] == [(erased, OutageError)]
    assert [one.payload.ticket_id for one, _ in found[1:]] == ["3"]


async def published(payload: Payload, index: MemoryIndex, *, tenant: str = "acme") -> list[Payload]:
    embedder = WordEmbedder()
    return [one async for one in handle_article(event("a", payload, tenant=tenant), embedder=embedder, index=index)]


async def test_articles_are_indexed_for_their_tenant_and_a_tombstone_retires_them():
    """Case 2, P8."""
    index = MemoryIndex()
    article = ArticlePublished(article_id="a1", title="Refunds", body="Refunds take five days.")
    for tenant in ("acme", "globex"):
        assert await published(article, index, tenant=tenant) == []
    assert set(index.articles) == {("acme", "a1"), ("globex", "a1")}
    assert await published(ArticleRetired(article_id="a1"), index) == []
    assert set(index.articles) == {("globex", "a1")}
    assert await published(ArticleRetired(article_id="never seen"), index) == []


CATALOGUE = Catalogue()
NOW = datetime(2025, 6, 1, 10, tzinfo=UTC)
OLD, NEW = (ArticlePublished(article_id="a1", title="Refunds", body=f"Refunds take {days} days.") for days in (30, 5))


def written(payload: Payload | None, at_ms: int | None) -> RawRecord:
    """A record of the articles topic; None is a tombstone."""
    encoded = encode(payload or OLD, catalogue=CATALOGUE, tenant="acme", source="cms", now=NOW, ordinal="", event_id=f"e{at_ms}")
    return RawRecord("articles", 0, at_ms or 0, b"acme/a1", encoded.value if payload else None, encoded.headers, at_ms)


async def replay_of(record: RawRecord, value: bytes | None = None) -> RawRecord:
    """What comes a day later when an operator sends the record's dead letter back."""
    out = dead_letter(record, DEATH, topic="dead-letters")
    died = RawRecord(out.topic, 0, 0, out.key, out.value, out.headers, 86_400_000)

    async def read() -> AsyncIterator[RawRecord]:
        yield died

    (letter,) = await view(read(), catalogue=CATALOGUE)
    back = edited_record(letter, value, catalogue=CATALOGUE, actor="kim") if value else None
    back = back or replay_record(letter, catalogue=CATALOGUE, actor="kim")
    return RawRecord(back.topic, 0, 0, back.key, back.value, back.headers, 86_500_000)


async def handled(index: MemoryIndex, *records: RawRecord) -> list[Any]:
    """The log of who reads these records."""
    with capture_logs() as logs:
        for record in records:
            event = decode(record, catalogue=CATALOGUE)
            assert [one async for one in handle_article(event, embedder=WordEmbedder(), index=index)] == []
    return logs


def bodies(index: MemoryIndex) -> list[str]:
    return [passage.text for rows in index.articles.values() for passage, _ in rows]


async def test_a_dead_letter_that_is_replayed_changes_nothing_that_came_since_and_the_log_says_so():
    index = MemoryIndex()
    replay, died_again = await replay_of(written(OLD, 100)), await replay_of(await replay_of(written(OLD, 100)))
    logs = await handled(index, written(NEW, 200), replay, died_again)
    assert bodies(index) == [NEW.body]
    replays = [decode(one, catalogue=CATALOGUE) for one in (replay, died_again)]
    assert logs == [
        {
            "event": "article_superseded",
            "log_level": "warning",
            "tenant": "acme",
            "key": "acme/a1",
            "id": one.id,
            "replay_id": one.replay_id,
        }
        for one in replays
    ]
    assert len(await handled(index, await replay_of(written(None, 150)))) == 1
    assert bodies(index) == [NEW.body]
    assert len(await handled(index, written(None, 300), replay)) == 1
    assert bodies(index) == []


async def test_an_edited_replay_obeys_the_same_rule_until_the_operator_raises_its_revision():
    index = MemoryIndex()
    values = [OLD.model_copy(update={"revision": revision}).model_dump_json().encode() for revision in (1, 2)]
    same, raised = [await replay_of(written(OLD, 100), value) for value in values]
    assert len(await handled(index, written(NEW, 200), same)) == 1
    assert bodies(index) == [NEW.body]
    assert await handled(index, raised, raised) == []
    assert bodies(index) == [OLD.body]


async def test_a_replay_of_the_newest_record_is_done_and_one_that_does_not_say_when_it_was_written_counts_as_old():
    index = MemoryIndex()
    assert await handled(index, written(OLD, 100), await replay_of(written(NEW, 200))) == []
    assert bodies(index) == [NEW.body]
    for replay in (await replay_of(written(OLD, None)), await replay_of(written(OLD, 300))):
        unreadable = replace(replay, headers=(*replay.headers, ("sluice.dlq.timestamp", "²".encode())))
        assert len(await handled(index, unreadable)) == 1
    assert bodies(index) == [NEW.body]


async def test_a_producer_does_not_say_that_its_record_is_a_replay_or_how_old_it_is():
    index = MemoryIndex()
    forged = replace(
        written(OLD, 100), headers=(*written(OLD, 100).headers, ("sluice.replay.id", b"x:1"), ("sluice.dlq.timestamp", b"9"))
    )
    assert await handled(index, written(NEW, 200), forged) == []
    assert bodies(index) == [OLD.body]


def test_that_an_article_was_retired_is_remembered_for_as_long_as_its_dead_letters_can_come_back():
    assert timedelta(seconds=CLAIM_RETENTION_S) <= RETIRED_TTL
