"""Feedback lands on its thread and on the trace of the answer it is about. Nothing is published."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from flows.agent.threads import ThreadRef
from topics.envelope import Event
from topics.events import FeedbackGiven, Payload, QueryAsked
from topics.feedback import feedback_of
from workers.ports import FeedbackBook, FeedbackTraces

Handler = Callable[[Event[Any]], AsyncGenerator[Payload]]


async def handle_feedback(event: Event[Payload], *, book: FeedbackBook, traces: FeedbackTraces) -> AsyncGenerator[Payload]:
    """Attach feedback to its thread, once per event, whether or not the thread is at work; then tell its query's trace.

    No lease is wanted: the thread's checkpoint is not touched. A trace may be told twice, when this process dies in between.
    """
    given = event.payload
    if isinstance(given, FeedbackGiven):
        thread = ThreadRef(event.tenant, given.thread_id).checkpoint_id
        feedback = feedback_of(given, event_id=event.id, at=event.time)
        is_new = await book.attach(thread, feedback)
        traced = None if given.query_id is None else await book.trace_of(thread, given.query_id)
        if is_new and traced is not None:
            traces.tell(feedback, traceparent=traced)
    for nothing in ():
        yield nothing


def with_traces(handler: Handler, *, book: FeedbackBook) -> Handler:
    """A handler of questions that does what `handler` does, and remembers the trace of each, for feedback that comes later."""

    async def handle(event: Event[Any]) -> AsyncGenerator[Payload]:
        if event.traceparent is not None and isinstance(event.payload, QueryAsked):
            thread = ThreadRef(event.tenant, event.payload.thread_id).checkpoint_id
            await book.remember_trace(thread, event.id, event.traceparent)
        async with aclosing(handler(event)) as payloads:
            async for payload in payloads:
                yield payload

    return handle
