"""What the query and the approval worker share: one thread at a time, under its lease, questions in order.

Every step may be the last one of its process, and the record that was being handled comes again. So what must not be lost is
durable before what rests on it: a request is registered before it is published, a question is held before it is called held, and
it is dropped only after the broker has its answer (a handler goes on behind a yield only then).
"""

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple

from flows.agent.decided import NEW_MESSAGE, POLICY_CHANGED, SUPERSEDED
from flows.agent.threads import Agent, GraphVersionError, ThreadRef
from topics.approval_state import ApprovalState
from topics.errors import LeaseBusyError, RejectedError
from topics.events import (
    AnswerFailed,
    AnswerHeld,
    ApprovalRequested,
    ApprovalWithdrawn,
    OnNewMessage,
    Payload,
    QueryAsked,
    Verdict,
)
from workers.call_offs import SharedCallOffs
from workers.ports import ApprovalRegistry, HeldQueries, HeldQuery, Lease, Leases

CALLED_OFF = "The asker called it off."
NOT_IN_TIME = "Nobody decided in time."


@dataclass(frozen=True, slots=True)
class Question:
    """A query and its id."""

    query_id: str
    query: QueryAsked
    is_called_off: bool = False


class Standing(NamedTuple):
    """What is decided of what a thread waits for.

    Verdicts to apply, approvals whose time ended and with it their query, and why others were taken back, by id.
    """

    won: tuple[tuple[str, Verdict], ...]
    expired: frozenset[str]
    withdrawn: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Conversation:
    """The agent, and what must be durable before anything about it is published."""

    agent: Agent
    leases: Leases
    approvals: ApprovalRegistry
    held: HeldQueries
    call_offs: SharedCallOffs

    async def ask(self, thread: ThreadRef, *, query_id: str, query: QueryAsked) -> AsyncGenerator[Payload]:
        """Answer a question, or hold it while the thread waits for people or has older questions to run."""
        question = Question(query_id, query)
        async with self._leased(thread) as lease:
            if await self._has_older(thread, query_id):
                if query_id not in await self._held_ids(thread):
                    async with aclosing(self._make_way(thread, lease)) as payloads:
                        async for payload in payloads:
                            yield payload
                await self.held.hold(thread.checkpoint_id, question)
                async with aclosing(self._run_held(thread, lease)) as payloads:
                    async for payload in payloads:
                        yield payload
                if query_id in await self._held_ids(thread):
                    pending = (await self.agent.status(thread)).pending
                    waiting_for = tuple(request.approval_id for request in pending)
                    yield AnswerHeld(thread_id=thread.thread_id, query_id=query_id, waiting_for=waiting_for)
            else:
                async with aclosing(self._ask(thread, lease, question, is_new=True)) as payloads:
                    async for payload in payloads:
                        yield payload
                async with aclosing(self._run_held(thread, lease)) as payloads:
                    async for payload in payloads:
                        yield payload

    def resume(self, thread: ThreadRef, *, approval_id: str, verdict: Verdict) -> AsyncGenerator[Payload]:
        """Apply a verdict that won, then run the questions that waited for it."""
        return self._then_held(thread, lambda lease: self._resume(thread, lease, approval_id, verdict))

    async def cancel(self, thread: ThreadRef, *, query_id: str | None, reason: str = CALLED_OFF) -> AsyncGenerator[Payload]:
        """Drop a question that has not begun, or call off one that runs or waits for people. One that is answered stays as it is.

        None means every question of the thread that is not answered.

        Raises:
            LeaseBusyError: Somebody works on the thread, and was told.
            GraphVersionError: Another build paused it. Nothing was changed.
        """
        try:
            async with aclosing(self._cancel(thread, query_id, reason)) as payloads:
                async for payload in payloads:
                    yield payload
        except LeaseBusyError:
            known = await self._open_ids(thread)
            await self.call_offs.tell(thread, known if query_id is None else known & {query_id})
            raise
        except RejectedError:
            self.call_offs.here.forget(thread, query_id)
            raise
        self.call_offs.here.forget(thread, query_id)

    def go_on(self, thread: ThreadRef) -> AsyncGenerator[Payload]:
        """Go on with what no record may be left for: a step that is open, decisions that won, questions that wait.

        Safe to repeat, and beside any record that is left: where nothing is open, it only tells again what is known.
        """
        return self._then_held(thread, lambda lease: self._go_on(thread, lease))

    def ask_again(self, thread: ThreadRef) -> AsyncGenerator[Payload]:
        """Put what waits under an older policy to the one of now: withdrawn, and asked again, run or denied as that says.

        A decision that won before is applied first, and the graph asks about it again by itself. Safe to repeat: where nothing
        older waits, it only tells again what is known.
        """
        return self._then_held(thread, lambda lease: self._ask_again(thread, lease))

    def expire(self, thread: ThreadRef, *, approval_id: str, query_id: str, reason: str) -> AsyncGenerator[Payload]:
        """Call a query off because nobody decided in time. The approval has expired; what else waits beside it is withdrawn."""
        return self._then_held(thread, lambda lease: self._call_off(thread, lease, query_id, reason=reason, expired={approval_id}))

    async def _then_held(self, thread: ThreadRef, begin: Callable[[Lease], AsyncGenerator[Payload]]) -> AsyncGenerator[Payload]:
        """Run something on a thread because of another record than its question's, then the questions that waited for it."""
        async with self._leased(thread) as lease:
            await self.call_offs.hear([thread])
            async with aclosing(begin(lease)) as payloads:
                async for payload in payloads:
                    yield payload
            async with aclosing(self._run_held(thread, lease)) as payloads:
                async for payload in payloads:
                    yield payload

    async def _cancel(self, thread: ThreadRef, query_id: str | None, reason: str) -> AsyncGenerator[Payload]:
        async with self.leases.hold(thread.checkpoint_id) as lease:
            begun = (await self.agent.status(thread)).query_id
            for question in await self.held.all(thread.checkpoint_id):
                if query_id in {None, question.query_id} and question.query_id != begun:
                    await self.held.call_off(thread.checkpoint_id, question.query_id)
            if begun is not None and query_id in {None, begun}:
                self.call_offs.here.call_off(thread, begun)  # what goes on first, to be told as it is, begins nothing more
            async with aclosing(self._call_off(thread, lease, query_id or begun, reason=reason)) as payloads:
                async for payload in payloads:
                    yield payload
            async with aclosing(self._run_held(thread, lease)) as payloads:
                async for payload in payloads:
                    yield payload

    async def _go_on(self, thread: ThreadRef, lease: Lease) -> AsyncGenerator[Payload]:
        begun = (await self.agent.status(thread)).query_id
        if begun is None:
            return
        # One that has begun is continued, or told as it stands; what it asks is in the thread.
        run = self.agent.ask(thread, query_id=begun, text="", user_id=None, fence=lease.fence)
        async with aclosing(self._registered(thread, run)) as payloads:
            async for payload in payloads:
                yield payload
        while (stands := await self._stands(thread)).won:
            async with aclosing(self._apply(thread, lease, stands.won)) as payloads:
                async for payload in payloads:
                    yield payload
        if (ending := self._ending(thread, lease, begun, stands)) is not None:
            async with aclosing(ending) as payloads:
                async for payload in payloads:
                    yield payload

    def _ending(self, thread: ThreadRef, lease: Lease, query_id: str, stands: Standing) -> AsyncGenerator[Payload] | None:
        """Tell the thread what whoever closed an approval did not live to tell it: nobody can decide there any more."""
        if stands.expired:
            return self._call_off(thread, lease, query_id, reason=NOT_IN_TIME, expired=stands.expired)
        reason = next(iter(stands.withdrawn.values()), None)
        if reason is None:
            return None
        if reason == POLICY_CHANGED:
            return self._ask_again(thread, lease)
        if reason in {NEW_MESSAGE, SUPERSEDED}:
            return self._make_way(thread, lease)
        return self._call_off(thread, lease, query_id, reason=reason)

    async def _ask_again(self, thread: ThreadRef, lease: Lease) -> AsyncGenerator[Payload]:
        version = self.agent.policy_version(thread.tenant)
        while (stands := await self._withdraw(thread, POLICY_CHANGED, older_than=version)).won:
            async with aclosing(self._apply(thread, lease, stands.won)) as payloads:
                async for payload in payloads:
                    yield payload
        # Whoever took one back may have died, and the older policy come back since: nobody can decide that one any more.
        gone = (await self._stands(thread)).withdrawn
        run = self._end_of_time(thread, lease, stands) or self.agent.ask_again(thread, fence=lease.fence, taken_back=gone)
        async with aclosing(self._registered(thread, run)) as payloads:
            async for payload in payloads:
                yield payload

    async def _stands(self, thread: ThreadRef) -> Standing:
        """What has been decided about what the thread waits for."""
        pending = (await self.agent.status(thread)).pending
        known = [await self.approvals.find(thread.tenant, request.approval_id) for request in pending]
        return _standing([state for state in known if state is not None])

    @asynccontextmanager
    async def _leased(self, thread: ThreadRef) -> AsyncGenerator[Lease]:
        """Hold the thread. Whoever holds it now is told what is called off: the record that says so may come after this one."""
        try:
            async with self.leases.hold(thread.checkpoint_id) as lease:
                yield lease
        except LeaseBusyError:
            if off := self.call_offs.here.of(thread):
                await self.call_offs.tell(thread, off & await self._open_ids(thread))
            raise

    async def _open_ids(self, thread: ThreadRef) -> set[str]:
        """The questions that have begun last or wait. One that comes later is not among them."""
        begun = (await self.agent.status(thread)).query_id
        waiting = await self._held_ids(thread)
        return waiting if begun is None else waiting | {begun}

    async def _has_older(self, thread: ThreadRef, query_id: str) -> bool:
        """Whether others wait already. One that the thread is busy with, or that is over, waits for none of them."""
        if not await self.held.first(thread.checkpoint_id):
            return False
        status = await self.agent.status(thread)
        return query_id not in {status.query_id, *status.past_query_ids}

    async def _held_ids(self, thread: ThreadRef) -> set[str]:
        return {one.query_id for one in await self.held.all(thread.checkpoint_id)}

    async def _ask(self, thread: ThreadRef, lease: Lease, question: HeldQuery, *, is_new: bool = False) -> AsyncGenerator[Payload]:
        """Run a question, or hold it. One that has just come may end what waits in its way, by the rule of the calls that wait."""
        gives_way = False
        async with aclosing(self._begin(thread, lease, question)) as payloads:
            async for payload in payloads:
                if isinstance(payload, AnswerHeld):
                    gives_way = is_new and await self._rule(thread) != "hold"
                    if gives_way:
                        continue
                    await self.held.hold(thread.checkpoint_id, question)
                yield payload
        if not gives_way:
            return
        async with aclosing(self._make_way(thread, lease)) as payloads:
            async for payload in payloads:
                yield payload
        async with aclosing(self._begin(thread, lease, question, tell_set_aside=False)) as payloads:
            async for payload in payloads:
                if isinstance(payload, AnswerHeld):
                    await self.held.hold(thread.checkpoint_id, question)
                yield payload

    def _begin(
        self, thread: ThreadRef, lease: Lease, question: HeldQuery, *, tell_set_aside: bool = True
    ) -> AsyncGenerator[Payload]:
        run = self.agent.ask(
            thread,
            query_id=question.query_id,
            text=question.query.text,
            user_id=question.query.user_id,
            fence=lease.fence,
            tell_set_aside=tell_set_aside,
        )
        return self._registered(thread, run)

    async def _make_way(self, thread: ThreadRef, lease: Lease) -> AsyncGenerator[Payload]:
        """End a waiting query whose calls give way to a new message. A decision that won before is applied first."""
        while (rule := await self._rule(thread)) != "hold":
            stands = await self._withdraw(thread, NEW_MESSAGE if rule == "cancel" else SUPERSEDED)
            run = (
                self._apply(thread, lease, stands.won)
                if stands.won
                else self._registered(
                    thread,
                    self._end_of_time(thread, lease, stands) or self.agent.set_aside(thread, rule=rule, fence=lease.fence),
                )
            )
            async with aclosing(run) as payloads:
                async for payload in payloads:
                    yield payload

    def _end_of_time(self, thread: ThreadRef, lease: Lease, stands: Standing) -> AsyncGenerator[Payload] | None:
        """Call the waiting query off if the time of an approval ended before. Whoever was to tell the thread has not come yet."""
        if not stands.expired:
            return None
        return self.agent.cancel(thread, query_id=None, reason=NOT_IN_TIME, fence=lease.fence, expired=stands.expired)

    async def _rule(self, thread: ThreadRef) -> OnNewMessage:
        """What a new message does to what waits. Another build's thread is left alone: it can only hold."""
        status = await self.agent.status(thread)
        return "hold" if status.is_foreign else status.on_new_message

    async def _is_free(self, thread: ThreadRef) -> bool:
        status = await self.agent.status(thread)
        return not status.pending and not status.is_foreign

    async def _apply(self, thread: ThreadRef, lease: Lease, won: Sequence[tuple[str, Verdict]]) -> AsyncGenerator[Payload]:
        for approval_id, verdict in won:
            async with aclosing(self._resume(thread, lease, approval_id, verdict)) as payloads:
                async for payload in payloads:
                    yield payload

    async def _resume(self, thread: ThreadRef, lease: Lease, approval_id: str, verdict: Verdict) -> AsyncGenerator[Payload]:
        run = self.agent.resume(thread, approval_id=approval_id, verdict=verdict, fence=lease.fence)
        async with aclosing(self._registered(thread, run)) as payloads:
            async for payload in payloads:
                yield payload

    async def _run_held(self, thread: ThreadRef, lease: Lease) -> AsyncGenerator[Payload]:
        """Answer those that were called off; run the others, oldest first, until the thread waits for people again."""
        for question in await self.held.all(thread.checkpoint_id):
            if question.is_called_off:
                attempt = lease.fence * 1000
                yield AnswerFailed(thread_id=thread.thread_id, query_id=question.query_id, attempt=attempt, code="cancelled")
                await self.held.drop(thread.checkpoint_id, question.query_id)
        while (question := await self.held.first(thread.checkpoint_id)) and await self._is_free(thread):
            await self.call_offs.hear([thread])
            async with aclosing(self._ask(thread, lease, question)) as payloads:
                async for payload in payloads:
                    yield payload
                    if isinstance(payload, AnswerHeld):
                        return  # a run that was cut off went on first, and asks again: this question has not begun
            await self.held.drop(thread.checkpoint_id, question.query_id)

    async def _call_off(
        self, thread: ThreadRef, lease: Lease, query_id: str | None, *, reason: str = CALLED_OFF, expired: Collection[str] = ()
    ) -> AsyncGenerator[Payload]:
        """Call the thread's waiting query off. A decision that won before is applied first: it was answered as accepted."""
        stands = Standing((), frozenset(expired), {})
        while (await self.agent.status(thread)).query_id == query_id and (stands := await self._withdraw(thread, reason)).won:
            async with aclosing(self._apply(thread, lease, stands.won)) as payloads:
                async for payload in payloads:
                    yield payload
        over = {*expired, *stands.expired}
        run = self.agent.cancel(thread, query_id=query_id, reason=reason, fence=lease.fence, expired=over)
        async with aclosing(self._registered(thread, run)) as payloads:
            async for payload in payloads:
                yield payload

    async def _withdraw(self, thread: ThreadRef, reason: str, *, older_than: str | None = None) -> Standing:
        """Take what waits out of the registry, which alone decides between a decision, the end of the time and a withdrawal.

        Args:
            reason: What approvers are told.
            older_than: Leave alone what was asked under this version of the policy.

        Raises:
            GraphVersionError: Another build paused the thread. Nothing was changed.
        """
        status = await self.agent.status(thread)
        if status.is_foreign:
            raise GraphVersionError(f"the thread was paused by graph {status.graph_version}")
        meant = [request for request in status.pending if request.policy_version != older_than]
        await self.approvals.open(thread.tenant, meant)
        return _standing([await self.approvals.withdraw(thread.tenant, request.approval_id, reason) for request in meant])

    async def _registered(self, thread: ThreadRef, run: AsyncGenerator[Payload]) -> AsyncGenerator[Payload]:
        """Make requests and withdrawals durable before they are published: who decides at once must find them."""
        async with aclosing(run) as payloads:
            async for payload in payloads:
                told = payload
                if isinstance(payload, ApprovalRequested):
                    await self.approvals.open(thread.tenant, [payload])
                elif isinstance(payload, ApprovalWithdrawn):
                    with suppress(LookupError):  # long forgotten: nobody can decide it either
                        known = await self.approvals.withdraw(thread.tenant, payload.approval_id, payload.reason)
                        if not known.announced:
                            yield known.request  # its worker died before: what is withdrawn was asked
                            await self.approvals.announced(thread.tenant, payload.approval_id)
                        if known.status == "withdrawn":
                            # Whoever was first may have died behind it, and had a reason of their own.
                            told = payload.model_copy(update={"reason": known.reason})
                yield told
                if isinstance(payload, ApprovalRequested):
                    await self.approvals.announced(thread.tenant, payload.approval_id)


def _standing(states: Sequence[ApprovalState]) -> Standing:
    won = tuple((one.request.approval_id, one.verdict) for one in states if one.verdict is not None)
    expired = frozenset(one.request.approval_id for one in states if one.status == "expired" and one.verdict is None)
    withdrawn = {one.request.approval_id: one.reason for one in states if one.status == "withdrawn"}
    return Standing(won, expired, withdrawn)
