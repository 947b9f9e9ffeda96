"""Where effects happen: one task per allowed call, behind the ledger."""

import logging
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeVar, cast

import anyio
from langchain_core.messages import ToolMessage
from langgraph.runtime import Runtime

from flows import runs
from flows.agent import calls, digests, judging, plan, search
from flows.agent.parts import AgentParts
from flows.agent.state import Call, ExecutedRecord, RunContext, Source, ThreadRef
from flows.agent.tools import Arguments, Tool, ToolContext, ToolRefusedError
from flows.answer_filter import MAX_HELD_CHARS, without_secrets
from flows.ports import EffectClaim, Passage
from topics.errors import BudgetExceededError, HaltError, OutageError, RetryableError, SluiceError, TimedOutError
from topics.text import clean_text, shorten

TOOL_FAILED: Final = "The tool failed. Whether it did anything is unknown."
READ_FAILED: Final = "The tool failed."
NOT_AS_APPROVED: Final = "Not run: the call is not what was approved."
IN_DOUBT: Final = "The outcome is unknown: an earlier try was cut off. It was not tried again; a person is asked what happened."
CUT: Final = "\n(The rest was cut off.)"

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Ran:
    """What a call came to."""

    text: str
    status: Literal["ok", "error", "in_doubt", "not_run"] = "ok"

    @classmethod
    def recorded(cls, claim: EffectClaim) -> "Ran":
        """What the ledger recorded."""
        if claim.result == NOT_AS_APPROVED:
            return NOT_RUN
        return cls(claim.result or "", "ok" if claim.ok else "error")


NOT_RUN: Final = Ran(NOT_AS_APPROVED, "not_run")


@dataclass(frozen=True, slots=True)
class Execute:
    """Run one allowed call; a re-run returns what the ledger recorded."""

    parts: AgentParts

    async def execute(self, state: dict[str, Any], runtime: Runtime[RunContext]) -> dict[str, Any]:
        """Run the node.

        Raises:
            RetryableError: No answer was stored. A re-run finds the effect in the ledger, done or in doubt.
            FencedError: Somebody else is the thread's writer now. Nothing was run.
        """
        call, flights = cast("Call", state["call"]), runtime.context.flights
        try:
            with flights.one():
                return await self._execute(call, runtime.context)
        except SluiceError:
            await flights.landed()
            raise

    async def _execute(self, call: Call, run: RunContext) -> dict[str, Any]:
        tool = self.parts.tool(run.thread.tenant, call["tool"])
        arguments = self._approved_arguments(tool, call, run.thread)
        # Of a tool that is gone nobody knows the class: it may have had an effect.
        is_read = tool is not None and tool.effect == "READ"
        key = None if is_read else call["effect_key"] or digests.effect_key_for(call["approval_id"], call["args_digest"])
        context = ToolContext(
            tenant=run.thread.tenant,
            user_id=call["requester"],
            idempotency_key=key,
            service=self.parts.service,
            retriever=self.parts.retriever,
        )
        if key is not None:
            ran = await self._run_once(tool, context, arguments, call=call, key=key, run=run)
        elif tool is None or arguments is None:
            ran = NOT_RUN
        else:
            ran = await self._run(tool, context, arguments)
        if ran.status != "in_doubt":
            return _update([(call, ran)])
        # The call stays without an answer: people are asked in a step of their own, with no effect beside them.
        told = {call["approval_id"]: plan.executed(call, status="in_doubt", result=ran.text)} if call["asked"] else {}
        return {"doubts": {call["call_id"]: {**call, "effect_key": key, "told": None}}, "executed": told}

    async def search(self, state: dict[str, Any], runtime: Runtime[RunContext]) -> dict[str, Any]:
        """Run all searches of one turn, and number their passages through.

        Raises:
            UnavailableError: The index did not answer. Nothing was stored.
        """
        tenant, ordered = runtime.context.thread.tenant, cast("list[Call]", state["calls"])
        found = await self._found([cast("str", call["arguments"]["query"]) for call in ordered], tenant=tenant)
        ran: list[tuple[Call, Ran]] = []
        sources: list[Source] = []
        for call, passages in zip(ordered, found, strict=True):
            if passages is None:
                ran.append((call, Ran(search.OVER_BUDGET, "error")))
                continue
            marker = cast("int", state["first_marker"]) + len(sources)
            # The index filters by tenant; a fault in it must not show one tenant's text to another.
            own = [replace(passage, text=without_secrets(passage.text)) for passage in passages if passage.tenant == tenant]
            ran.append((call, Ran(clean_text(search.render(own, first_marker=marker)))))
            sources += search.sources_of(own, first_marker=marker)
        return {**_update(ran), "sources": sources}

    async def _found(self, queries: Sequence[str], *, tenant: str) -> list[Sequence[Passage] | None]:
        """What searches find, at the same time, in the order of the queries; None for one that the tenant's budget denies."""
        found: dict[int, Sequence[Passage] | None] = {}
        failures: list[SluiceError] = []

        async def find(index: int, query: str) -> None:
            searched = self.parts.retriever.search(tenant=tenant, query=query, limit=self.parts.limits.passages_per_search)
            try:
                found[index] = await _in_time(runs.search_run("articles", query, searched), search.TOOL.timeout_s)
            except BudgetExceededError:
                found[index] = None
            except SluiceError as error:
                failures.append(error)  # alone: a group of errors has no fate of its own

        async with anyio.create_task_group() as tasks:
            for index, query in enumerate(queries):
                tasks.start_soon(find, index, query)
        if failures:
            raise failures[0]
        return [found[index] for index in range(len(queries))]

    def _approved_arguments(self, tool: Tool | None, call: Call, thread: ThreadRef) -> Arguments | None:
        """The arguments of a call that is what was approved, and that this build can run; else None."""
        if tool is None or judging.call_problem(self.parts, call["tool"], call["arguments"], tenant=thread.tenant) is not None:
            return None
        digest = digests.args_digest_for(
            thread,
            approval_id=call["approval_id"],
            tool=call["tool"],
            arguments=call["arguments"],
            policy_version=self.parts.policy.version_of(thread.tenant),
        )
        return calls.parse_arguments(tool, call["arguments"]) if digest == call["args_digest"] else None

    async def _run_once(
        self, tool: Tool | None, context: ToolContext, arguments: Arguments | None, *, call: Call, key: str, run: RunContext
    ) -> Ran:
        """Run a call that did not run before. Without arguments it may not run any more: what came of it is told all the same."""
        attempt, told = call["attempt"], call["told"]
        if (landed := await self._landed(key, attempt, run)) is not None:
            return landed
        ledger_key = digests.ledger_key_for(key, attempt)
        claim = await self.parts.ledger.begin(ledger_key, thread=run.thread.checkpoint_id, fence=run.fence)
        if claim.state == "done":
            return Ran.recorded(claim)
        if told is not None:
            return await self._record(ledger_key, Ran(told))
        was_begun = claim.state == "in_doubt" or attempt > 0
        if tool is None or arguments is None:
            # Told as not run, the model would order it again, under another key: only where nobody began it.
            ran = await self._find(tool, context) if was_begun else NOT_RUN
            return Ran(IN_DOUBT, "in_doubt") if ran is None else await self._record(ledger_key, ran)
        if claim.state == "in_doubt" and tool.effect == "IRREVERSIBLE":
            if tool.lookup is None:
                return Ran(IN_DOUBT, "in_doubt")
            if (found := await self._find(tool, context)) is not None:
                return await self._record(ledger_key, found)
        return await self._record(ledger_key, await self._run(tool, context, arguments))

    async def _landed(self, key: str, attempt: int, run: RunContext) -> Ran | None:
        """What a try before this one came to, if its worker could record it after all."""
        for earlier in range(attempt):
            ledger_key = digests.ledger_key_for(key, earlier)
            claim = await self.parts.ledger.begin(ledger_key, thread=run.thread.checkpoint_id, fence=run.fence)
            if claim.state == "done":
                return Ran.recorded(claim)
        return None

    async def _record(self, ledger_key: str, ran: Ran) -> Ran:
        await self.parts.ledger.finish(ledger_key, result=ran.text, ok=ran.status == "ok")
        return ran

    async def _find(self, tool: Tool | None, context: ToolContext) -> Ran | None:
        """What a keyed call came to, by the tool's own word; None where it has none, or knows of no such call."""
        if tool is None or tool.lookup is None:
            return None
        try:
            found = await _in_time(tool.lookup(context), tool.timeout_s)
        except ToolRefusedError as refusal:
            return self._refused(refusal)
        return None if found is None else Ran(self._bounded(found))

    def _refused(self, refusal: ToolRefusedError) -> Ran:
        return Ran(self._bounded(str(refusal)) or "The tool refused the call.", "error")

    async def _run(self, tool: Tool, context: ToolContext, arguments: Arguments) -> Ran:
        typed = {name: getattr(arguments, name) for name in type(arguments).model_fields}
        try:
            return Ran(self._bounded(await _in_time(runs.tool_run(tool.name, typed, tool.run(context, typed)), tool.timeout_s)))
        except ToolRefusedError as refusal:
            return self._refused(refusal)
        except (RetryableError, OutageError, HaltError):
            raise
        except Exception as error:  # noqa: BLE001 a tool's bug is the model's to read and not the record's to die of
            # The type only: a message may quote what a customer wrote.
            _log.error("tool %s failed with %s", tool.name, type(error).__name__)
            return Ran(READ_FAILED if tool.effect == "READ" else TOOL_FAILED, "error")

    def _bounded(self, text: str) -> str:
        limit = self.parts.limits.tool_result_chars
        # Secrets would go on into calls, requests and summaries. A little more than is kept is read, so that none is seen by half.
        masked = without_secrets(text[: limit + MAX_HELD_CHARS])
        return masked if len(text) <= limit else shorten(masked, limit) + CUT


async def _in_time(work: Awaitable[_T], timeout_s: float) -> _T:
    try:
        with anyio.fail_after(timeout_s):
            return await work
    except TimeoutError as error:
        raise TimedOutError("a tool did not answer in time") from error


def _update(results: list[tuple[Call, Ran]]) -> dict[str, Any]:
    messages = [_message(call, ran) for call, ran in results]
    executed: dict[str, ExecutedRecord] = {
        call["approval_id"]: plan.executed(call, status=ran.status, result=ran.text) for call, ran in results if call["asked"]
    }
    return {"messages": messages, "executed": executed}


def _message(call: Call, ran: Ran) -> ToolMessage:
    if not call["edited"]:
        return plan.answer(call, text=ran.text, ok=ran.status == "ok")
    shown = digests.canonical(call["arguments"]).decode()
    notice = f"A person edited the arguments of this call to {shown}. This is what ran; do not repeat the original call."
    return plan.answer(call, text=f"{notice}\n{ran.text}", ok=ran.status == "ok")
