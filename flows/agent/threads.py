"""Drive threads through the graph, from handlers that may run any number of times, on any process.

Callers hold the thread's lease. Every fact is read from what is saved after a run, never from its stream.
"""

from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Sequence
from contextlib import aclosing
from typing import Any, Literal

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver

from flows import streaming
from flows.agent import decided, facts, judging
from flows.agent.call_offs import CallOffs
from flows.agent.graph import AgentGraph, Snapshot, Waiting
from flows.agent.judging import EditProblem, JudgedEdit
from flows.agent.parts import AgentLimits, AgentParts
from flows.agent.state import AGAIN, CANCEL, EXPIRED, REVISED, RunContext, ThreadRef, next_query
from flows.agent.thread_status import GraphVersionError, StaleApprovalError, ThreadGoneError, ThreadStatus
from flows.agent.tools import Toolset
from flows.approvals.policy import ApprovalPolicy, Policy
from flows.ports import Clock, EffectLedger, Retriever, ToolService
from flows.streaming import AnswerStream
from topics.events import AnswerHeld, ApprovalRequested, Payload, Verdict
from topics.text import clean_json, clean_text

__all__ = [
    "Agent",
    "AgentLimits",
    "EditProblem",
    "GraphVersionError",
    "JudgedEdit",
    "StaleApprovalError",
    "ThreadGoneError",
    "ThreadRef",
    "ThreadStatus",
]


class Agent:
    """Ask, resume and look, one thread at a time."""

    def __init__(
        self,
        *,
        model: BaseChatModel,
        checkpointer: BaseCheckpointSaver[Any],
        toolset_for: Callable[[str], Toolset],
        service: ToolService,
        retriever: Retriever,
        ledger: EffectLedger,
        clock: Clock,
        policy: Policy | None = None,
        limits: AgentLimits | None = None,
        call_offs: CallOffs | None = None,
        link_hosts_for: Callable[[str], Collection[str]] = lambda _tenant: (),
        callbacks: Sequence[BaseCallbackHandler] = (),
    ) -> None:
        """Build the graph.

        Raises:
            ConfigError: The installed LangGraph cannot resume strictly.
        """
        self._parts = AgentParts(
            model=model,
            toolset_for=toolset_for,
            service=service,
            retriever=retriever,
            ledger=ledger,
            clock=clock,
            policy=policy or ApprovalPolicy(),
            limits=limits or AgentLimits(),
            call_offs=call_offs or CallOffs(),
            link_hosts_for=link_hosts_for,
            callbacks=callbacks,
        )
        self._clock = clock
        self._graph = AgentGraph(self._parts, checkpointer)
        self.graph_version = self._graph.version

    async def ask(
        self, thread: ThreadRef, *, query_id: str, text: str, user_id: str | None, fence: int, tell_set_aside: bool = True
    ) -> AsyncGenerator[Payload]:
        """Run a query, or continue it, or tell what became of it.

        A query that is over and was followed by so many others that it is no longer kept yields nothing. On a thread that
        waits for approvals another query yields AnswerHeld, and is not stored.

        Args:
            fence: Of the thread's lease. It grows with each grant, and with it the attempt numbers.
            tell_set_aside: Whether the end of a query that a newer message set aside is told first. The message that did
                it may have died before it was told, and then nobody else would.

        Raises:
            RetryableError: A dependency failed. What was done is saved; the same call continues it.
            GraphVersionError: An open step that this build cannot continue stands in the way. Nothing was changed.
        """
        context = RunContext(thread, fence)
        before = await self._graph.snapshot(thread)
        if _is_past(before, query_id):
            # Its record may be a dead letter that is replayed: whoever ended it may have died before it was told.
            for payload in self._facts(before, self._stream(before, context, reopened="retry", query_id=query_id)):
                yield payload
            return
        if before.open_step:
            async with aclosing(self._continue(before, context)) as payloads:
                async for payload in payloads:
                    yield payload
            before = await self._graph.snapshot(thread)
        elif before.exists and before.state.get("query_id") == query_id:
            for payload in self._facts(before, self._stream(before, context, reopened="retry")):
                yield payload
        if before.exists and before.state.get("query_id") == query_id:
            return
        if before.waiting or self._is_foreign(before):
            waiting_for = tuple(request.approval_id for request in facts.requests_of(before))
            yield AnswerHeld(thread_id=thread.thread_id, query_id=query_id, waiting_for=waiting_for)
            return
        if before.open_step:
            raise RuntimeError("a continued thread still has an open step")  # new input would drop what its tasks wrote
        if tell_set_aside and before.exists and decided.wrote_again(before.state):
            for payload in self._facts(before, self._stream(before, context, reopened="retry")):
                yield payload
        message = HumanMessage(clean_text(text), id=query_id)
        step = next_query(before.state, message=message, thread=thread, user_id=user_id, graph_version=self.graph_version)
        stream = AnswerStream(
            thread_id=thread.thread_id,
            query_id=query_id,
            fence=fence,
            clock=self._clock,
            interval_s=self._parts.limits.delta_interval_s,
        )
        async with aclosing(self._run(self._graph.run(step, context, before), thread, stream)) as payloads:
            async for payload in payloads:
                yield payload

    async def resume(self, thread: ThreadRef, *, approval_id: str, verdict: Verdict, fence: int) -> AsyncGenerator[Payload]:
        """Apply the verdict that won, and run on. Applied before: only tell what became of it.

        Raises:
            ThreadGoneError: There is no such thread.
            GraphVersionError: Another build paused it, or this one cannot run what was approved. Nothing was changed.
            StaleApprovalError: Nothing waits for this approval, and this verdict was never applied.
            RetryableError: A dependency failed. What was done is saved; the same call continues it.
        """
        context = RunContext(thread, fence)
        before = await self._graph.snapshot(thread)
        if not before.exists:
            raise ThreadGoneError("the thread has no checkpoint")
        self._check_version(before)
        continued = before.open_step
        if continued:
            async with aclosing(self._continue(before, context)) as payloads:
                async for payload in payloads:
                    yield payload
            before = await self._graph.snapshot(thread)
        waiting = _find(before, approval_id)
        if waiting is None:
            for payload in self._applied_before(before, context, approval_id, verdict, continued=continued):
                yield payload
            return
        problem = self.build_problem(facts.request_of(waiting), tenant=thread.tenant, decision=verdict.decision)
        if problem is not None:
            raise GraphVersionError(problem)
        self._check_approved(before, thread)
        answer = clean_json(verdict.model_dump(mode="json"))
        stream = self._stream(before, context, reopened="resumed")
        chunks = self._graph.resume({waiting.interrupt_id: answer}, context, before)
        async with aclosing(self._run(chunks, thread, stream)) as payloads:
            async for payload in payloads:
                yield payload

    async def cancel(
        self, thread: ThreadRef, *, query_id: str | None, reason: str, fence: int, expired: Collection[str] = ()
    ) -> AsyncGenerator[Payload]:
        """Call a waiting query off: withdraw its requests, run none of its calls, and end it as `cancelled`.

        A query that does not wait, or that is another than the one named, yields nothing; one that was called off before tells
        so again. None names the last one.

        Args:
            expired: Approvals whose time ended. They are told as expired, and not as withdrawn.

        Raises:
            GraphVersionError: Another build paused it, or this one cannot run what was approved. Nothing was changed.
        """
        context = RunContext(thread, fence)
        before = await self._graph.snapshot(thread)
        if not before.exists:
            return
        if query_id not in (None, before.state.get("query_id")):
            for payload in self._cancelled_before(before, context, query_id):
                yield payload
            return
        if before.open_step:
            async with aclosing(self._continue(before, context)) as payloads:
                async for payload in payloads:
                    yield payload
            before = await self._graph.snapshot(thread)
        for payload in self._cancelled_before(before, context, before.state.get("query_id")):
            yield payload
        self._check_version(before)
        answers = {
            waiting.interrupt_id: _instead(EXPIRED if waiting.request["approval_id"] in expired else CANCEL, reason)
            for waiting in before.waiting
        }
        async with aclosing(self._answer(before, context, answers)) as payloads:
            async for payload in payloads:
                yield payload

    async def set_aside(self, thread: ThreadRef, *, rule: Literal["cancel", "revise"], fence: int) -> AsyncGenerator[Payload]:
        """End a waiting query because the customer wrote again: `cancelled`, or `superseded` where the rule is to revise.

        Either way its requests are withdrawn and none of its calls runs. After `revise` the model is told that it may call
        again what the new message still wants, and the next request of the tool names the one it supersedes.

        Raises:
            GraphVersionError: Another build paused it. Nothing was changed.
        """
        before = await self._graph.snapshot(thread)
        self._check_version(before)
        word = _instead(CANCEL, decided.NEW_MESSAGE) if rule == "cancel" else _instead(REVISED, decided.SUPERSEDED)
        answers = {waiting.interrupt_id: word for waiting in before.waiting}
        async with aclosing(self._answer(before, RunContext(thread, fence), answers)) as payloads:
            async for payload in payloads:
                yield payload

    async def ask_again(self, thread: ThreadRef, *, fence: int, taken_back: Collection[str] = ()) -> AsyncGenerator[Payload]:
        """Put requests of an older policy to the one of now: they are withdrawn, and asked again, run or denied as it says.

        Where none is older, only what is known is told again, and nothing changes.

        Args:
            taken_back: Approvals that nobody can decide any more. They are asked about again under whatever policy.

        Raises:
            GraphVersionError: Another build paused it, or this one cannot run what was approved. Nothing was changed.
        """
        context = RunContext(thread, fence)
        before = await self._graph.snapshot(thread)
        continued = before.open_step
        if continued:
            async with aclosing(self._continue(before, context)) as payloads:
                async for payload in payloads:
                    yield payload
            before = await self._graph.snapshot(thread)
        self._check_version(before)
        version = self.policy_version(thread.tenant)
        answers = {
            waiting.interrupt_id: _instead(AGAIN, decided.POLICY_CHANGED)
            for waiting in before.waiting
            if waiting.request["policy_version"] != version or waiting.request["approval_id"] in taken_back
        }
        if not answers and not continued:
            for payload in self._facts(before, self._stream(before, context, reopened="retry")):
                yield payload
        async with aclosing(self._answer(before, context, answers)) as payloads:
            async for payload in payloads:
                yield payload

    async def status(self, thread: ThreadRef) -> ThreadStatus:
        """What is saved of a thread."""
        snapshot = await self._graph.snapshot(thread)
        if not snapshot.exists:
            return ThreadStatus(exists=False)
        return ThreadStatus(
            exists=True,
            pending=facts.requests_of(snapshot),
            on_new_message=facts.on_new_message(snapshot),
            is_foreign=self._is_foreign(snapshot),
            open_step=snapshot.open_step,
            query_id=snapshot.state.get("query_id"),
            past_query_ids=tuple(snapshot.state.get("past_query_ids", ())),
            graph_version=snapshot.state.get("graph_version"),
        )

    def policy_version(self, tenant: str) -> str:
        """The version of the tenant's policy: what was decided under another one does not count."""
        return self._parts.policy.version_of(tenant)

    def resumes(self, graph_version: str | None) -> bool:
        """Whether this build can go on with a thread that a build of this version paused."""
        return graph_version in self._graph.resumable

    def build_problem(self, request: ApprovalRequested, *, tenant: str, decision: str) -> str | None:
        """Why this build cannot do what was decided, or None. What it cannot do stays decidable by the build that asked."""
        graphs = self._graph.resumable
        return judging.build_problem(self._parts, request, tenant=tenant, decision=decision, graphs=graphs)

    def judge_edit(
        self, request: ApprovalRequested, *, tool: str | None, arguments: dict[str, Any] | None, tenant: str
    ) -> JudgedEdit | EditProblem:
        """Read and judge an edit before it may count."""
        return judging.judge_edit(self._parts, request, tool=tool, arguments=arguments, tenant=tenant)

    async def _continue(self, before: Snapshot, context: RunContext) -> AsyncGenerator[Payload]:
        """Finish a step that a crash left open. Its query may be another than the caller's; nobody else would tell about it."""
        self._check_version(before)
        # Whoever called the query off need not wait for a build that can: what ran is told, and nothing else begins.
        if not self._parts.call_offs.is_off(context.thread, before.state["query_id"]):
            self._check_approved(before, context.thread)
        stream = self._stream(before, context, reopened="retry")
        async with aclosing(self._run(self._graph.run(None, context, before), context.thread, stream)) as payloads:
            async for payload in payloads:
                yield payload

    async def _answer(self, before: Snapshot, context: RunContext, answers: dict[str, dict[str, Any]]) -> AsyncGenerator[Payload]:
        """Answer interrupts with something else than a person's decision, and run on; none: do nothing."""
        if not answers:
            return
        stream = self._stream(before, context, reopened="retry")
        async with aclosing(self._run(self._graph.resume(answers, context, before), context.thread, stream)) as payloads:
            async for payload in payloads:
                yield payload

    def _cancelled_before(self, snapshot: Snapshot, context: RunContext, query_id: str | None) -> Iterator[Payload]:
        query = facts.query_of(snapshot, query_id)
        if query is not None and query["outcome"] is not None and query["outcome"]["code"] == "cancelled":
            yield from self._facts(snapshot, self._stream(snapshot, context, reopened="retry", query_id=query_id))

    def _applied_before(
        self, snapshot: Snapshot, context: RunContext, approval_id: str, verdict: Verdict, *, continued: bool
    ) -> Iterator[Payload]:
        applied = snapshot.state.get("decisions", {}).get(approval_id)
        if applied is None or applied["decision_id"] != verdict.decision_id:
            raise StaleApprovalError("nothing waits for this approval")
        if continued and applied["query_id"] == snapshot.state.get("query_id"):
            return
        stream = self._stream(snapshot, context, reopened="retry", query_id=applied["query_id"])
        yield from self._facts(snapshot, stream)

    def _stream(
        self, snapshot: Snapshot, context: RunContext, *, reopened: Literal["retry", "resumed"], query_id: str | None = None
    ) -> AnswerStream:
        return AnswerStream(
            thread_id=context.thread.thread_id,
            query_id=query_id or snapshot.state.get("query_id", ""),
            fence=context.fence,
            clock=self._clock,
            interval_s=self._parts.limits.delta_interval_s,
            reopened=reopened,
        )

    async def _run(
        self, chunks: AsyncGenerator[AIMessageChunk], thread: ThreadRef, stream: AnswerStream
    ) -> AsyncGenerator[Payload]:
        """Stream a run's text, then tell the facts that it left."""
        with self._parts.call_offs.running(thread, stream.query_id):
            async with aclosing(chunks) as open_chunks:
                async for chunk in open_chunks:
                    turn, text = chunk.id or "", streaming.text_of(chunk)
                    for payload in stream.chunk(turn=turn, text=text, calls_tools=streaming.calls_tools(chunk)):
                        yield payload
        after = await self._graph.snapshot(thread)
        for payload in self._facts(after, stream):
            yield payload
        if after.is_idle:
            await self._graph.prune(thread)

    def _facts(self, snapshot: Snapshot, stream: AnswerStream) -> Iterator[Payload]:
        """Everything that is known of the stream's query, and everything that waits."""
        query = facts.query_of(snapshot, stream.query_id)
        if query is not None:
            yield from facts.withdrawn_of(query, thread_id=stream.thread_id)
            yield from facts.executed_of(query, thread_id=stream.thread_id)
        yield from facts.requests_of(snapshot)
        if query is None:
            return
        text = facts.final_text(query)
        if text is not None:
            yield from stream.finish(text)
        ending = facts.ending_of(query, thread_id=stream.thread_id, attempt=stream.attempt)
        if ending is not None:
            yield ending

    def _is_foreign(self, snapshot: Snapshot) -> bool:
        """Whether another build left it unfinished. LangGraph drops tasks of nodes it does not know: no task is not the end."""
        is_over = snapshot.is_idle and snapshot.state.get("outcome") is not None
        return snapshot.exists and not is_over and not self.resumes(snapshot.state.get("graph_version"))

    def _check_version(self, snapshot: Snapshot) -> None:
        if self._is_foreign(snapshot):
            raise GraphVersionError(f"the thread was paused by graph {snapshot.state.get('graph_version')}")

    def _check_approved(self, snapshot: Snapshot, thread: ThreadRef) -> None:
        """Park a thread whose approved calls this build cannot run: one that can will."""
        problem = judging.approved_problem(self._parts, snapshot.state, tenant=thread.tenant)
        if problem is not None:
            raise GraphVersionError(problem)


def _is_past(snapshot: Snapshot, query_id: str) -> bool:
    return query_id in snapshot.state.get("past_query_ids", [])


def _instead(word: str, reason: str) -> dict[str, Any]:
    """What answers an interrupt in the place of a person's verdict."""
    return {"decision_id": "", "decision": word, "approver": "", "message": clean_text(reason)}


def _find(snapshot: Snapshot, approval_id: str) -> Waiting | None:
    return next((waiting for waiting in snapshot.waiting if waiting.request["approval_id"] == approval_id), None)
