"""What the query and the approval worker share: one thread at a time, under its lease, questions in order."""

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass

from flows.agent.threads import Agent, ThreadRef
from topics.events import AnswerFailed, AnswerHeld, ApprovalRequested, Payload, QueryAsked, Verdict
from workers.ports import ApprovalRegistry, HeldQueries, HeldQuery, Lease, Leases


@dataclass(frozen=True, slots=True)
class Question:
    """A query and its id."""

    query_id: str
    query: QueryAsked


@dataclass(frozen=True, slots=True)
class Conversation:
    """The agent, and what must be durable before anything about it is published."""

    agent: Agent
    leases: Leases
    approvals: ApprovalRegistry
    held: HeldQueries

    async def ask(self, thread: ThreadRef, *, query_id: str, query: QueryAsked) -> AsyncGenerator[Payload]:
        """Answer a question, or hold it while the thread waits for people or has older questions to run."""
        async with self.leases.hold(thread.checkpoint_id) as lease:
            if await self.held.first(thread.checkpoint_id):
                await self.held.hold(thread.checkpoint_id, Question(query_id, query))
                if pending := (await self.agent.status(thread)).pending:
                    waiting_for = tuple(request.approval_id for request in pending)
                    yield AnswerHeld(thread_id=thread.thread_id, query_id=query_id, waiting_for=waiting_for)
            else:
                async for payload in self._ask(thread, lease, Question(query_id, query)):
                    yield payload
            async for payload in self._run_held(thread, lease):
                yield payload

    async def resume(self, thread: ThreadRef, *, approval_id: str, verdict: Verdict) -> AsyncGenerator[Payload]:
        """Apply a verdict that won, then run the questions that waited for it."""
        async with self.leases.hold(thread.checkpoint_id) as lease:
            run = self.agent.resume(thread, approval_id=approval_id, verdict=verdict, fence=lease.fence)
            async for payload in self._registered(thread, run):
                yield payload
            async for payload in self._run_held(thread, lease):
                yield payload

    async def cancel(self, thread: ThreadRef, *, query_id: str) -> AsyncGenerator[Payload]:
        """Drop a question that has not begun. One that runs or is answered stays as it is."""
        async with self.leases.hold(thread.checkpoint_id) as lease:
            if await self.held.drop(thread.checkpoint_id, query_id):
                yield AnswerFailed(thread_id=thread.thread_id, query_id=query_id, attempt=lease.fence * 1000, code="cancelled")

    async def _ask(self, thread: ThreadRef, lease: Lease, question: HeldQuery) -> AsyncGenerator[Payload]:
        run = self.agent.ask(
            thread, query_id=question.query_id, text=question.query.text, user_id=question.query.user_id, fence=lease.fence
        )
        async for payload in self._registered(thread, run):
            if isinstance(payload, AnswerHeld):
                await self.held.hold(thread.checkpoint_id, question)
            yield payload

    async def _run_held(self, thread: ThreadRef, lease: Lease) -> AsyncGenerator[Payload]:
        """Run what waited, oldest first, until the thread waits for people again."""
        while (question := await self.held.first(thread.checkpoint_id)) and not (await self.agent.status(thread)).pending:
            async for payload in self._ask(thread, lease, question):
                yield payload
            await self.held.drop(thread.checkpoint_id, question.query_id)

    async def _registered(self, thread: ThreadRef, run: AsyncIterator[Payload]) -> AsyncGenerator[Payload]:
        """Make requests durable before they are published: who decides at once must find them."""
        async for payload in run:
            if isinstance(payload, ApprovalRequested):
                await self.approvals.open(thread.tenant, [payload])
            yield payload
