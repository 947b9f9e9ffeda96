"""Reads every topic that Sluice writes, and remembers what was said. Knows nothing but the topics."""

from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import anyio

from topics.envelope import Event
from topics.errors import TimedOutError
from topics.events import (
    AnswerCompleted,
    AnswerDelta,
    AnswerFailed,
    AnswerHeld,
    AnswerRestarted,
    ApprovalAccepted,
    ApprovalAmended,
    ApprovalEscalated,
    ApprovalExecuted,
    ApprovalExpired,
    ApprovalRefused,
    ApprovalReminded,
    ApprovalRequested,
    Payload,
    TicketTriaged,
)


@dataclass(slots=True)
class Stream:
    """What was streamed for one query: text by attempt and sequence."""

    pieces: dict[int, dict[int, str]] = field(default_factory=lambda: defaultdict[int, dict[int, str]](dict))
    completed: AnswerCompleted | None = None
    failed: AnswerFailed | None = None
    held: bool = False

    @property
    def ended(self) -> bool:
        """Whether an answer, or its failure, is there."""
        return self.completed is not None or self.failed is not None

    def is_true(self) -> bool:
        """P9: the pieces of the completed attempt, joined, are the final text, and no later attempt was begun."""
        if self.completed is None:
            return False
        pieces = self.pieces.get(self.completed.attempt, {})
        whole = "".join(text for _, text in sorted(pieces.items()))
        return whole == self.completed.text and self.completed.attempt == max(self.pieces, default=self.completed.attempt)


@dataclass(slots=True)
class Witness:
    """Facts by their ids, so that a fact that is published twice counts once."""

    triaged: dict[tuple[str, str], TicketTriaged] = field(default_factory=dict[tuple[str, str], TicketTriaged])
    streams: dict[str, Stream] = field(default_factory=lambda: defaultdict[str, Stream](Stream))
    requests: dict[str, tuple[str, ApprovalRequested]] = field(default_factory=dict[str, tuple[str, ApprovalRequested]])
    accepted: dict[str, ApprovalAccepted] = field(default_factory=dict[str, ApprovalAccepted])
    refused: dict[str, ApprovalRefused] = field(default_factory=dict[str, ApprovalRefused])
    executed: dict[str, ApprovalExecuted] = field(default_factory=dict[str, ApprovalExecuted])
    amended: dict[str, ApprovalAmended] = field(default_factory=dict[str, ApprovalAmended])
    expired: dict[str, ApprovalExpired] = field(default_factory=dict[str, ApprovalExpired])
    escalated: dict[str, ApprovalEscalated] = field(default_factory=dict[str, ApprovalEscalated])
    reminded: dict[str, ApprovalReminded] = field(default_factory=dict[str, ApprovalReminded])
    _changed: anyio.Event = field(default_factory=anyio.Event)

    async def watch(self, events: AsyncIterator[Event[Any]]) -> None:
        """Take note of everything, for ever."""
        async for event in events:
            self.note(event)
            self._changed.set()
            self._changed = anyio.Event()

    def note(self, event: Event[Any]) -> None:
        """Take note of one event."""
        payload = event.payload
        match payload:
            case TicketTriaged():
                self.triaged[event.tenant, payload.ticket_id] = payload
            case ApprovalRequested():
                self.requests[payload.approval_id] = (event.tenant, payload)
            case _:
                self._note_stream(payload)
                self._note_approval(payload)

    def _note_stream(self, payload: Payload) -> None:
        match payload:
            case AnswerDelta():
                self.streams[payload.query_id].pieces[payload.attempt][payload.sequence] = payload.text
            case AnswerRestarted():
                self.streams[payload.query_id].pieces.setdefault(payload.attempt, {})
            case AnswerCompleted():
                self.streams[payload.query_id].completed = payload
            case AnswerFailed():
                self.streams[payload.query_id].failed = payload
            case AnswerHeld():
                self.streams[payload.query_id].held = True
            case _:
                pass

    def _note_approval(self, payload: Payload) -> None:
        match payload:
            case ApprovalAccepted():
                self.accepted[payload.decision_id] = payload
            case ApprovalRefused():
                self.refused[payload.decision_id] = payload
            case ApprovalExecuted():
                self.executed[payload.approval_id] = payload
            case ApprovalAmended():
                self.amended[payload.approval_id] = payload
            case ApprovalExpired():
                self.expired[payload.approval_id] = payload
            case ApprovalEscalated():
                self.escalated[payload.identity()] = payload
            case ApprovalReminded():
                self.reminded[payload.identity()] = payload
            case _:
                pass

    async def until(self, condition: Callable[[], bool], *, within_s: float, waiting_for: str) -> None:
        """Wait until the topics say so.

        Raises:
            TimedOutError: They did not, in time.
        """
        try:
            with anyio.fail_after(within_s):
                while not condition():
                    await self._changed.wait()
        except TimeoutError:
            raise TimedOutError(f"{waiting_for} did not happen within {within_s:g} s") from None
