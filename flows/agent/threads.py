"""Drive threads through the graph, from handlers that may run any number of times, on any process.

Callers hold the thread's lease. Every fact is read from what is saved after a run, never from its stream.
"""

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, Literal

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver

from flows import streaming
from flows.agent import calls, digests, facts, gate
from flows.agent.graph import AgentGraph, Snapshot, Waiting
from flows.agent.parts import AgentLimits, AgentParts
from flows.agent.state import RunContext, ThreadRef, next_query
from flows.agent.tools import Toolset
from flows.approvals.policy import Allow, ApprovalPolicy, Ask, Deny, Policy
from flows.ports import Clock, EffectLedger, Retriever, ToolService
from flows.streaming import AnswerStream
from topics.errors import RejectedError
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


_RUNS: Final = ("approve", "edit")


class StaleApprovalError(RejectedError):
    """The approval waits for nobody any more, and this verdict is not the one that was applied. Nothing was changed."""

    code = "stale"


class ThreadGoneError(RejectedError):
    """The thread has no checkpoint: a resume would start a ghost run. Nothing was changed."""

    code = "thread_gone"


class GraphVersionError(RejectedError):
    """The thread was paused by another build of the graph. It stays paused, decidable by that build."""

    code = "graph_version"


@dataclass(frozen=True, slots=True)
class ThreadStatus:
    """A thread from outside. `open_step`: a run was cut off and must be continued first."""

    exists: bool
    pending: tuple[ApprovalRequested, ...] = ()
    open_step: bool = False
    query_id: str | None = None
    graph_version: str | None = None


@dataclass(frozen=True, slots=True)
class EditProblem:
    """Why an edit cannot count. The detail quotes no value."""

    code: Literal["edit_changes_tool", "unknown_tool", "invalid_arguments", "denied", "needs_other_approver"]
    detail: str


@dataclass(frozen=True, slots=True)
class JudgedEdit:
    """An edit that may count: arguments as they would run, the digest to echo, and what the policy says of them."""

    arguments: dict[str, Any]
    args_digest: str
    judgement: Allow | Ask


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
            policy=policy or ApprovalPolicy(),
            limits=limits or AgentLimits(),
        )
        self._clock = clock
        self._graph = AgentGraph(self._parts, checkpointer)
        self.graph_version = self._graph.version

    async def ask(self, thread: ThreadRef, *, query_id: str, text: str, user_id: str | None, fence: int) -> AsyncGenerator[Payload]:
        """Run a query, or continue it, or tell what became of it.

        A query that is over and was followed by others yields nothing. On a thread that waits for approvals another query
        yields AnswerHeld, and is not stored.

        Args:
            fence: Of the thread's lease. It grows with each grant, and with it the attempt numbers.

        Raises:
            RetryableError: A dependency failed. What was done is saved; the same call continues it.
            GraphVersionError: Another build's open step stands in the way. Nothing was changed.
        """
        context = RunContext(thread, fence)
        before = await self._graph.snapshot(thread)
        if _is_past(before, query_id):
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
        if before.waiting:
            waiting_for = tuple(request.approval_id for request in facts.requests_of(before))
            yield AnswerHeld(thread_id=thread.thread_id, query_id=query_id, waiting_for=waiting_for)
            return
        if before.open_step:
            raise RuntimeError("a continued thread still has an open step")  # new input would drop what its tasks wrote
        message = HumanMessage(clean_text(text), id=query_id)
        step = next_query(before.state, message=message, thread=thread, user_id=user_id, graph_version=self.graph_version)
        stream = AnswerStream(
            thread_id=thread.thread_id,
            query_id=query_id,
            fence=fence,
            clock=self._clock,
            interval_s=self._parts.limits.delta_interval_s,
        )
        async with aclosing(self._run(self._graph.run(step, context), thread, stream)) as payloads:
            async for payload in payloads:
                yield payload

    async def resume(self, thread: ThreadRef, *, approval_id: str, verdict: Verdict, fence: int) -> AsyncGenerator[Payload]:
        """Apply the verdict that won, and run on. Applied before: only tell what became of it.

        Raises:
            ThreadGoneError: There is no such thread.
            GraphVersionError: Another build paused it.
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
        answer = clean_json(verdict.model_dump(mode="json"))
        stream = self._stream(before, context, reopened="resumed")
        async with aclosing(self._run(self._graph.resume({waiting.interrupt_id: answer}, context), thread, stream)) as payloads:
            async for payload in payloads:
                yield payload

    async def cancel(self, thread: ThreadRef, *, query_id: str | None, reason: str, fence: int) -> AsyncGenerator[Payload]:
        """Call a waiting query off: withdraw its requests, run none of its calls, and end it as `cancelled`.

        A query that does not wait, or that is another than the one named, yields nothing. None names the last one.

        Raises:
            GraphVersionError: Another build paused it. Nothing was changed.
        """
        context = RunContext(thread, fence)
        before = await self._graph.snapshot(thread)
        if not before.exists or query_id not in (None, before.state.get("query_id")):
            return
        if before.open_step:
            async with aclosing(self._continue(before, context)) as payloads:
                async for payload in payloads:
                    yield payload
            before = await self._graph.snapshot(thread)
        stream = self._stream(before, context, reopened="retry")
        outcome = before.state.get("outcome")
        if outcome is not None and outcome["code"] == "cancelled":
            for payload in self._facts(before, stream):
                yield payload
        if not before.waiting:
            return
        self._check_version(before)
        called_off = {"decision_id": "", "decision": gate.CANCEL, "approver": "", "message": clean_text(reason)}
        answers = {waiting.interrupt_id: called_off for waiting in before.waiting}
        async with aclosing(self._run(self._graph.resume(answers, context), thread, stream)) as payloads:
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
            open_step=snapshot.open_step,
            query_id=snapshot.state.get("query_id"),
            graph_version=snapshot.state.get("graph_version"),
        )

    def policy_version(self, tenant: str) -> str:
        """The version of the tenant's policy: what was decided under another one does not count."""
        return self._parts.policy.version_of(tenant)

    def build_problem(self, request: ApprovalRequested, *, tenant: str, decision: str) -> str | None:
        """Why this build cannot do what was decided, or None. What it cannot do stays decidable by the build that asked."""
        if request.graph_version != self.graph_version:
            return f"the thread was paused by graph {request.graph_version}"
        if decision not in _RUNS:
            return None
        tool = self._parts.tool(tenant, request.tool)
        if tool is None:
            return "this build has no such tool"
        try:
            unchanged = calls.plain_arguments(tool, request.arguments) == request.arguments
        except calls.InvalidArgumentsError:
            unchanged = False
        return None if unchanged else "the tool takes other arguments in this build"

    def judge_edit(
        self, request: ApprovalRequested, *, tool: str | None, arguments: dict[str, Any] | None, tenant: str
    ) -> JudgedEdit | EditProblem:
        """Read and judge an edit before it may count: same tool, valid arguments, and the policy's word on the edited call."""
        if tool is not None and tool != request.tool:
            return EditProblem("edit_changes_tool", "an edit cannot change the tool")
        known = self._parts.tool(tenant, request.tool)
        if known is None:
            return EditProblem("unknown_tool", "the tenant no longer has this tool")
        try:
            edited = calls.plain_arguments(known, clean_json(arguments))
        except calls.InvalidArgumentsError as error:
            return EditProblem("invalid_arguments", str(error))
        judgement = self._parts.policy.verdict_on(known, edited, tenant=tenant, requester=request.requester)
        if isinstance(judgement, Deny):
            return EditProblem("denied", judgement.reason[: calls.MAX_PROBLEM_CHARS])
        digest = digests.args_digest_for(
            ThreadRef(tenant, request.thread_id),
            approval_id=request.approval_id,
            tool=request.tool,
            arguments=edited,
            policy_version=self.policy_version(tenant),
        )
        return JudgedEdit(edited, digest, judgement)

    def check_edit(
        self, request: ApprovalRequested, *, tool: str | None, arguments: dict[str, Any] | None, tenant: str
    ) -> EditProblem | None:
        """Judge an edit where nobody counts votes: it may not need other people than the original call."""
        judged = self.judge_edit(request, tool=tool, arguments=arguments, tenant=tenant)
        if isinstance(judged, EditProblem):
            return judged
        if isinstance(judged.judgement, Ask) and judged.judgement.terms != request.terms:
            return EditProblem("needs_other_approver", "the edited call needs another approver")
        return None

    async def _continue(self, before: Snapshot, context: RunContext) -> AsyncGenerator[Payload]:
        """Finish a step that a crash left open. Its query may be another than the caller's; nobody else would tell about it."""
        self._check_version(before)
        stream = self._stream(before, context, reopened="retry")
        async with aclosing(self._run(self._graph.run(None, context), context.thread, stream)) as payloads:
            async for payload in payloads:
                yield payload

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

    def _check_version(self, snapshot: Snapshot) -> None:
        if not snapshot.is_idle and snapshot.state.get("graph_version") != self.graph_version:
            raise GraphVersionError(f"the thread was paused by graph {snapshot.state.get('graph_version')}")


def _is_past(snapshot: Snapshot, query_id: str) -> bool:
    return query_id in snapshot.state.get("past_query_ids", [])


def _find(snapshot: Snapshot, approval_id: str) -> Waiting | None:
    return next((waiting for waiting in snapshot.waiting if waiting.request["approval_id"] == approval_id), None)
