"""Questions and orders become agent runs."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from flows.agent.call_offs import CallOffs
from flows.agent.threads import ThreadRef
from topics.envelope import Event
from topics.events import Payload, QueryAsked, QueryCancelled, QueryContinued
from workers.conversation import Conversation


def hear_query(event: Event[Payload], *, call_offs: CallOffs) -> None:
    """Call a running query off before its cancellation gets its turn, which comes only after the query's own end."""
    if isinstance(event.payload, QueryCancelled):
        call_offs.call_off(ThreadRef(event.tenant, event.payload.thread_id), event.payload.query_id)


async def handle_query(event: Event[Payload], *, conversation: Conversation) -> AsyncGenerator[Payload]:
    """Run, continue or hold the agent for one question; call off what is no longer wanted; or go on with what is left open."""
    match event.payload:
        case QueryAsked() as query:
            payloads = conversation.ask(ThreadRef(event.tenant, query.thread_id), query_id=event.id, query=query)
        case QueryCancelled(thread_id=thread_id, query_id=query_id):
            payloads = conversation.cancel(ThreadRef(event.tenant, thread_id), query_id=query_id)
        case QueryContinued(thread_id=thread_id):
            payloads = conversation.go_on(ThreadRef(event.tenant, thread_id))
        case _:
            return
    async with aclosing(payloads):
        async for payload in payloads:
            yield payload
