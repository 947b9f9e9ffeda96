"""Asking a worker to call a thread's questions off or to go on with them, and hearing what comes of it."""

import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import anyio

from topics.catalogue import ANSWERS, REQUESTS
from topics.envelope import Event
from topics.errors import RejectedError, TimedOutError
from topics.events import (
    AnswerCompleted,
    AnswerFailed,
    ApprovalRequested,
    Payload,
    QueryCancelled,
    QueryContinued,
)
from workers.client import Client
from workers.threads import ThreadView, look

SILENT_FOR_S: Final = 60.0
CALLED_OFF: Final = "cancelled"


@dataclass(slots=True)
class Told:
    """What came of a thread's questions: how each ended, and what became of its calls, counted by status.

    `waits_for` is what people are asked about now, and `waits_no_more` what they were asked about before: tools by approval id.
    """

    tenant: str
    thread_id: str
    wanted: frozenset[str]
    endings: dict[str, str] = field(default_factory=dict[str, str])
    calls: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    waits_for: dict[str, str] = field(default_factory=dict[str, str])
    waits_no_more: dict[str, str] = field(default_factory=dict[str, str])

    def take(self, event: Event[Any]) -> bool:
        """Take note of an event. False when it is about another thread."""
        payload: Payload = event.payload
        if event.tenant != self.tenant or getattr(payload, "thread_id", None) != self.thread_id:
            return False
        match payload:
            case AnswerCompleted(query_id=query_id, outcome=outcome) if query_id in self.wanted:
                self.endings[query_id] = outcome
            case AnswerFailed(query_id=query_id, code=code) if query_id in self.wanted:
                self.endings[query_id] = code
            case _:
                pass
        return True

    def compare(self, before: ThreadView, after: ThreadView) -> None:
        """Take note of how the thread stands: what is stored is never behind what was published."""
        self.calls = {one.query_id: dict(one.calls) for one in after.queries if one.query_id in self.wanted and one.calls}
        self.waits_for = _waiting(after)
        self.waits_no_more = {one: tool for one, tool in _waiting(before).items() if one not in self.waits_for}

    @property
    def ended(self) -> bool:
        """Whether everything that was asked about has ended."""
        return self.wanted <= self.endings.keys()


async def call_off(client: Client, *, tenant: str, thread_id: str, query_id: str | None) -> Told:
    """Call one question off, or all of a thread that have not ended, and hear their ends.

    Raises:
        RejectedError: None is open (`nothing_open`), or the one that is named has ended (`late`). Nothing was published.
        TimedOutError: It was published, and nothing came of it in time.
    """
    asked = QueryCancelled(thread_id=thread_id, query_id=query_id)
    return await _ask(client, asked, tenant=tenant, wanted=lambda view: _to_call_off(view, query_id))


async def go_on(client: Client, *, tenant: str, thread_id: str) -> Told:
    """Go on with what a thread left open, until it has ended or waits for people.

    Raises:
        RejectedError: There is nothing to go on with (`nothing_open`). Nothing was published.
        TimedOutError: It was published, and nothing came of it in time.
    """
    return await _ask(client, QueryContinued(thread_id=thread_id), tenant=tenant, wanted=_to_go_on_with)


async def _ask(
    client: Client, asked: QueryCancelled | QueryContinued, *, tenant: str, wanted: Callable[[ThreadView], frozenset[str]]
) -> Told:
    see = partial(look, client.settings, tenant=tenant, thread_id=asked.thread_id)
    async with client.watch([ANSWERS, REQUESTS]) as events:
        before = await see()
        told = Told(tenant, asked.thread_id, wanted(before))
        await client.publish(asked, tenant=tenant, event_id=secrets.token_hex(12))
        await _hear(events, told, see, unknown=told.wanted - open_queries(before))
    told.compare(before, await see())
    return told


def open_queries(view: ThreadView) -> frozenset[str]:
    """The questions of a thread that have not ended: those that wait, and the last one that began."""
    return frozenset((*view.held, *(one.query_id for one in view.queries[-1:] if one.outcome is None)))


def _to_call_off(view: ThreadView, query_id: str | None) -> frozenset[str]:
    if query_id is None:
        if not open_queries(view):
            raise RejectedError(f"nothing to call off: thread {view.thread_id} has no open question", code="nothing_open")
        return open_queries(view)
    outcome = next((one.outcome for one in view.queries if one.query_id == query_id), None)
    if outcome is not None:
        raise RejectedError(f"too late: query {query_id} has ended, {outcome}", code="late")
    return frozenset({query_id})  # one that waits for its first turn is known to nobody yet


def _to_go_on_with(view: ThreadView) -> frozenset[str]:
    if view.pending:
        waits = ", ".join(one.request.approval_id for one in view.pending)
        raise RejectedError(f"nothing to continue: it waits for people to decide on {waits}", code="nothing_open")
    if not open_queries(view):
        raise RejectedError(f"nothing to continue: thread {view.thread_id} has no open question", code="nothing_open")
    return open_queries(view)


def _waiting(view: ThreadView) -> dict[str, str]:
    return {one.request.approval_id: one.request.tool for one in view.pending}


async def _hear(
    events: AsyncGenerator[Event[Any]], told: Told, see: Callable[[], Awaitable[ThreadView]], *, unknown: Collection[str]
) -> None:
    """Take note of what is published about the thread, until everything has ended or people are waited for."""
    with anyio.move_on_after(SILENT_FOR_S) as waiting:
        async for event in events:
            if not told.take(event):
                continue
            waiting.deadline = anyio.current_time() + SILENT_FOR_S
            # A request that is told again may have been decided long ago.
            if told.ended or (isinstance(event.payload, ApprovalRequested) and (await see()).pending):
                return
    if unknown:
        raise TimedOutError(
            f"published, but the thread has no open query {', '.join(unknown)}, and nothing of it was heard within "
            f"{SILENT_FOR_S:g} s: is the id right?"
        )
    raise TimedOutError(
        f"published, but nothing more came of it within {SILENT_FOR_S:g} s: is a query worker running? If it was refused, "
        "`sluice dead list` says why; `sluice threads show` says how the thread stands"
    )
