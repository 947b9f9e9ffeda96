"""Tickets are triaged in batches; articles are indexed."""

from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Final

import structlog
from langchain_core.runnables import RunnableConfig

from flows.ingest import index_article, retire_article
from flows.ports import ArticleIndex, Embedder, ExampleStore
from flows.triage import Triage
from topics.envelope import Event
from topics.errors import SluiceError, SupersededError
from topics.events import ArticlePublished, ArticleRetired, Payload, TicketErased, TicketOpened, TicketTriaged

_log: Final[Any] = structlog.get_logger("sluice.ingestion")


async def handle_tickets(
    events: Sequence[Event[Payload]], *, triage: Triage, examples: ExampleStore, config: RunnableConfig | None = None
) -> AsyncGenerator[tuple[Event[Payload], Payload | Exception]]:
    """Triage the new tickets of a batch. Of an erased one, the example that was made of it goes; a closed one changes nothing.

    A batch holds the heads of lanes, so no two of its events share a key.
    """
    for event in events:
        if isinstance(event.payload, TicketErased):
            try:
                await examples.remove(event.tenant, [event.payload.ticket_id])
            except SluiceError as error:
                yield event, error
    by_key = {event.key: event for event in events}
    opened = [(event.key, event.payload) for event in events if isinstance(event.payload, TicketOpened)]
    versions: Counter[str | None] = Counter()
    async with aclosing(triage.triage(opened, config)) as outcomes:  # left early, it ends what still runs
        async for key, outcome in outcomes:
            if isinstance(outcome, TicketTriaged):
                versions[outcome.prompt_version] += 1
            yield by_key[key], outcome
    if versions:
        _log.info("triaged", prompt_versions=dict(versions))


def tell_loss(tenant: str, error: SluiceError) -> None:
    """Log why a tenant's tickets are triaged without its examples."""
    _log.warning("examples_lost", tenant=tenant, code=error.reason_code, why=str(error))


async def handle_article(event: Event[Payload], *, embedder: Embedder, index: ArticleIndex) -> AsyncGenerator[Payload]:
    """Put an article into its tenant's index, or take it out. Nothing is published, and what is newer stays."""
    try:
        match event.payload:
            case ArticlePublished() as article:
                await index_article(article, tenant=event.tenant, embedder=embedder, index=index, origin=event.origin)
            case ArticleRetired() as article:
                await retire_article(article, tenant=event.tenant, index=index, origin=event.origin)
            case _:
                pass
    except SupersededError:
        _log.warning("article_superseded", tenant=event.tenant, key=event.key, id=event.id, replay_id=event.replay_id)
    for nothing in ():
        yield nothing
