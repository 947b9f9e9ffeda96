"""Tickets are triaged in batches; articles are indexed."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from langchain_core.runnables import RunnableConfig

from flows.ingest import index_article, retire_article
from flows.ports import ArticleIndex, Embedder
from flows.triage import Triage
from topics.envelope import Event
from topics.events import ArticlePublished, ArticleRetired, Payload, TicketOpened


async def handle_tickets(
    events: Sequence[Event[Payload]], *, triage: Triage, config: RunnableConfig | None = None
) -> AsyncGenerator[tuple[Event[Payload], Payload | Exception]]:
    """Triage the new tickets of a batch. A closed or erased one asks no model; nothing of it is kept here.

    A batch holds the heads of lanes, so no two of its events share a key.
    """
    by_key = {event.key: event for event in events}
    opened = [(event.key, event.payload) for event in events if isinstance(event.payload, TicketOpened)]
    async with aclosing(triage.triage(opened, config)) as outcomes:  # left early, it ends what still runs
        async for key, outcome in outcomes:
            yield by_key[key], outcome


async def handle_article(event: Event[Payload], *, embedder: Embedder, index: ArticleIndex) -> AsyncGenerator[Payload]:
    """Put an article into its tenant's index, or take it out. Nothing is published."""
    match event.payload:
        case ArticlePublished() as article:
            await index_article(article, tenant=event.tenant, embedder=embedder, index=index)
        case ArticleRetired() as article:
            await retire_article(article, tenant=event.tenant, index=index)
        case _:
            pass
    for nothing in ():
        yield nothing
