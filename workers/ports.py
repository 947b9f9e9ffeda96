"""What handlers need from outside, beyond what flows need."""

from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol

from topics.approval_state import ApprovalPage, ApprovalQuery, ApprovalState
from topics.chain import Outcome
from topics.events import (
    ApprovalDecided,
    ApprovalRequested,
    QueryAsked,
)
from topics.feedback import Feedback


class Lease(Protocol):
    """The right to write one thread. `fence` grows with every grant of that thread."""

    @property
    def fence(self) -> int: ...


class Leases(Protocol):
    """One writer per thread."""

    def hold(self, thread: str) -> AbstractAsyncContextManager[Lease]:
        """Hold a thread for as long as the block runs; it is renewed meanwhile.

        Raises:
            LeaseBusyError: Another worker holds it.
            FencedError: The lease was lost; the block is cancelled.
        """
        ...


class ApprovalRegistry(Protocol):
    """The approvals as they stand. It keeps them and decides nothing: `flows/approvals/machine.py` does."""

    async def open(self, tenant: str, requests: Sequence[ApprovalRequested]) -> None:
        """Register requests before they are published. One that is known stays as it is. Durable on return."""
        ...

    async def announced(self, tenant: str, approval_id: str) -> None:
        """Remember that the broker has the request. Forgotten, it is published once more."""
        ...

    async def find(self, tenant: str, approval_id: str) -> ApprovalState | None:
        """One approval of this tenant; another tenant's is unknown."""
        ...

    async def store(self, state: ApprovalState) -> bool:
        """Replace the revision before this one. Durable on return. False when another is there: look again.

        Raises:
            LookupError: The tenant has no such approval.
        """
        ...

    async def withdraw(self, tenant: str, approval_id: str, reason: str = "") -> ApprovalState:
        """Take a pending request back. Returns what stands now: a verdict that was first stays.

        Raises:
            LookupError: The tenant has no such approval.
        """
        ...

    async def pending(self, tenant: str | None, *, limit: int) -> Sequence[ApprovalState]:
        """Open approvals, oldest first."""
        ...

    async def search(self, query: ApprovalQuery) -> ApprovalPage:
        """Open approvals that match, oldest first, a page at a time."""
        ...

    async def due(self, now: datetime, *, limit: int) -> Sequence[ApprovalState]:
        """Open approvals about which something is to be done by now, soonest first.

        Each is put off a little, so that it comes again, and not at once, if nothing comes of it.
        """
        ...


class Identity(Protocol):
    """Who decided, as far as it can be shown. `key_id` and `token_id` are None where an unsigned word was good enough."""

    @property
    def person(self) -> str: ...
    @property
    def roles(self) -> frozenset[str]: ...
    @property
    def key_id(self) -> str | None: ...
    @property
    def token_id(self) -> str | None: ...


class Verifier(Protocol):
    """Who a decision comes from. It holds public keys only."""

    def verify(self, tenant: str, decided: ApprovalDecided, *, tool: str) -> Identity:
        """Tell who decided, and that they meant exactly this: tenant, thread, approval, `tool`, digest, edit and message.

        A token is good until its end, so a decision that was recorded before is looked up before it is verified again.

        Raises:
            ForgedError: It cannot be shown. Nothing was recorded.
        """
        ...

    def stands(self, tenant: str, key_id: str | None) -> bool:
        """Whether what this key said still counts: it is in the tenant's set now, or None and unsigned words count."""
        ...


class AuditChain(Protocol):
    """The outcomes of a tenant, numbered without gaps, each bound to the one before."""

    async def append(self, tenant: str, outcome: Outcome, *, cause: str) -> Outcome:
        """Give an outcome its link; one that has it already comes back as it was, to the byte. Durable on return.

        `cause` is the record that led to it: what it was given and may not have been published is `untold` until `told`.

        Raises:
            OutageError: Whether it was given its link is unknown; repeating it is safe.
        """
        ...

    async def untold(self, tenant: str, *, cause: str) -> Sequence[Outcome]:
        """What an earlier attempt of a record gave a link and may not have published, in order."""
        ...

    async def told(self, tenant: str, outcome: Outcome) -> None:
        """The broker has it."""
        ...


class HeldQuery(Protocol):
    """A question that waits for a thread's approvals. One that is called off only waits to be told so."""

    @property
    def query_id(self) -> str: ...
    @property
    def query(self) -> QueryAsked: ...
    @property
    def is_called_off(self) -> bool: ...


class HeldQueries(Protocol):
    """Questions that wait, in order, per thread. A query id is held once."""

    async def hold(self, thread: str, held: HeldQuery) -> None:
        """Put one at the end. Durable on return."""
        ...

    async def first(self, thread: str) -> HeldQuery | None:
        """The next to run, or None."""
        ...

    async def all(self, thread: str) -> Sequence[HeldQuery]:
        """Every one that waits, the next to run first."""
        ...

    async def call_off(self, thread: str, query_id: str) -> bool:
        """Mark one: it must not run any more. Durable on return. False when it was not there."""
        ...

    async def drop(self, thread: str, query_id: str) -> bool:
        """Take one out, after it ran or was cancelled. False when it was not there."""
        ...


class CallOffNotes(Protocol):
    """Questions that are called off, for whichever process runs them. They are forgotten by themselves."""

    async def note(self, thread: str, query_ids: Collection[str]) -> None:
        """Keep some."""
        ...

    async def noted(self, threads: Sequence[str]) -> Sequence[Collection[str]]:
        """What is kept of each thread, in their order."""
        ...


class FeedbackBook(Protocol):
    """What people said of a thread's answers, and the traces of its questions."""

    async def attach(self, thread: str, feedback: Feedback) -> bool:
        """Keep one, once per id; of very many, the newest. Durable on return. False when it was there."""
        ...

    async def of(self, thread: str) -> Sequence[Feedback]:
        """All that is kept, oldest first."""
        ...

    async def remember_trace(self, thread: str, query_id: str, traceparent: str) -> None:
        """Keep where a question's trace is (W3C traceparent); the first word stands."""
        ...

    async def trace_of(self, thread: str, query_id: str) -> str | None:
        """The trace of a question, or None when nobody told it or it is long ago."""
        ...


class FeedbackTraces(Protocol):
    """Where traces go."""

    def tell(self, feedback: Feedback, *, traceparent: str) -> None:
        """Tell a question's trace that there is feedback on it: the thumb, and never the note."""
        ...
