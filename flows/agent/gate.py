"""The gate: which calls wait for a person, and what may run once all have been decided. No effect happens here."""

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeGuard, cast

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.runtime import Runtime
from langgraph.types import Command, Send, interrupt

from flows import history
from flows.agent import calls, digests, search
from flows.agent.calls import Judged, Problem
from flows.agent.parts import AgentParts
from flows.agent.state import AgentState, Call, DecisionRecord, ExecutedRecord, RunContext, ThreadRef
from flows.agent.tools import EVERY_DECISION
from flows.approvals.policy import Allow, Ask, Deny
from topics import sizes
from topics.events import Decision

CANCEL: Final = "cancel"
CANCELLED: Final = "Not run: the request was called off."
MAX_MESSAGE_CHARS: Final = 4_000
NOT_DECIDED: Final = "Not run: there is no valid decision on this call."


@dataclass(slots=True)
class _Plan:
    """What dispatch found: calls that run, answers to those that do not, and what to tell approvers."""

    runs: list[Call]
    answers: list[ToolMessage]
    executed: dict[str, ExecutedRecord]


@dataclass(frozen=True, slots=True)
class Gate:
    """The nodes and edges between a model's turn and its tools."""

    parts: AgentParts
    graph_version: str

    def after_model(self, state: AgentState, runtime: Runtime[RunContext]) -> list[Send] | Literal["dispatch", "repair", "end"]:
        """Ask about each call that asks, each in a task of its own; none asks: go on."""
        if state.get("outcome") is not None:
            return "end"
        if _turn(state) is None:
            return "repair"
        asks = [judged for judged in self._read(state, runtime.context.thread) if _asks(judged)]
        return [Send("gate", self._request(judged, state, runtime.context.thread)) for judged in asks] or "dispatch"

    def gate(self, state: dict[str, Any]) -> dict[str, Any]:
        """Wait for one verdict. Runs again from its top on every resume, so there is nothing but the interrupt in it."""
        request = state
        verdict = cast("dict[str, Any]", interrupt(request))
        record = DecisionRecord(
            query_id=request["query_id"],
            tool=request["tool"],
            arguments=request["arguments"],
            args_digest=request["args_digest"],
            decision_id=verdict["decision_id"],
            decision=verdict["decision"],
            approver=verdict["approver"],
            edited_arguments=verdict.get("arguments"),
            message=verdict.get("message"),
        )
        return {"decisions": {request["approval_id"]: record}}

    def dispatch(self, state: AgentState, runtime: Runtime[RunContext]) -> Command[Literal["execute", "search", "model"]]:
        """All are decided: send what may run, answer the rest."""
        plan = self._plan(state, runtime.context.thread)
        sends = [Send("execute", {"call": call}) for call in plan.runs if call["tool"] != search.TOOL.name]
        searches = [call for call in plan.runs if call["tool"] == search.TOOL.name]
        if searches:
            # One task for all searches of a turn: passages are numbered through the query, without gaps.
            sends.append(Send("search", {"calls": searches, "first_marker": len(state.get("sources", [])) + 1}))
        return Command(update={"messages": plan.answers, "executed": plan.executed}, goto=sends or "model")

    def repair(self, state: AgentState) -> dict[str, Any]:
        """Answer what is open in a state that no rule knows; the count of model calls bounds how often."""
        answers = [
            calls.answer_to(call_id, message_id=f"repair:{call_id}", tool="unknown", text=NOT_DECIDED, ok=False)
            for call_id in history.open_call_ids(state["messages"])
        ]
        return {"messages": answers, "model_calls": state["model_calls"] + 1}

    def _read(self, state: AgentState, thread: ThreadRef) -> list[Judged | Problem]:
        turn = _turn(state)
        if turn is None:
            return []
        return calls.read_calls(
            turn,
            thread=thread,
            query_id=state["query_id"],
            requester=state.get("user_id"),
            toolset=self.parts.toolset(thread.tenant),
            policy=self.parts.policy,
        )

    def _request(self, judged: Judged, state: AgentState, thread: ThreadRef) -> dict[str, Any]:
        """An `ApprovalRequested` as JSON, all but the interrupt's id, which only LangGraph knows."""
        turn, call = _turn(state), judged.call
        ask = cast("Ask", judged.judgement)
        return {
            "approval_id": call["approval_id"],
            "thread_id": thread.thread_id,
            "query_id": call["query_id"],
            "tool": call["tool"],
            "tool_class": judged.tool.effect,
            "arguments": call["arguments"],
            "args_digest": call["args_digest"],
            "policy_version": self.parts.policy.version_of(thread.tenant),
            "graph_version": self.graph_version,
            "allowed_decisions": list(ask.allowed_decisions),
            "terms": ask.terms.model_dump(mode="json"),
            "amount": ask.amount,
            "requester": call["requester"],
            "reason": turn.text[: sizes.MAX_REASON_CHARS] if turn else "",
            "history": _earlier_decisions(state, call["tool"])[-sizes.MAX_EARLIER_DECISIONS :],
        }

    def _plan(self, state: AgentState, thread: ThreadRef) -> _Plan:
        plan, decisions = _Plan(runs=[], answers=[], executed={}), state.get("decisions", {})
        cancelled = is_cancelled(state)
        for judged in self._read(state, thread):
            if isinstance(judged, Problem):
                plan.answers.append(judged.answer())
                continue
            decision = decisions.get(judged.call["approval_id"])
            # A decision counts even if the policy would no longer ask: a rejected call must not run because the rule was eased.
            if cancelled:
                # One call-off is for the whole query: what was approved before it does not run either.
                _add(plan, judged.call, decision, CANCELLED)
            elif decision is None and isinstance(judged.judgement, Allow):
                plan.runs.append(judged.call)
            else:
                _add(plan, judged.call, decision, self._rule(judged, decision, thread))
        _tell_the_rest(plan, state)
        return plan

    def _rule(self, judged: Judged, decision: DecisionRecord | None, thread: ThreadRef) -> Call | str:
        """The call that may run, or the text that answers it instead."""
        if decision is None or decision["args_digest"] != judged.call["args_digest"]:
            # A policy of another version changes the digest: what was approved under the old one must be asked again.
            return NOT_DECIDED
        if decision["decision"] not in (*_allowed(judged), CANCEL):
            return NOT_DECIDED
        message = (decision["message"] or "")[:MAX_MESSAGE_CHARS]
        match decision["decision"]:
            case "approve":
                return {**judged.call, "asked": True}
            case "edit":
                return self._edited(judged, decision, thread)
            case "respond":
                return message or "A person answered without text."
            case "reject":
                return f"A person rejected this call; it was not run. Reason: {message or 'none given'}"
            case _:
                return CANCELLED

    def _edited(self, judged: Judged, decision: DecisionRecord, thread: ThreadRef) -> Call | str:
        call, tool = judged.call, judged.tool
        try:
            arguments = calls.plain_arguments(tool, decision["edited_arguments"])
        except calls.InvalidArgumentsError:
            return "A person edited this call, but the edited arguments are invalid; it was not run."
        judgement = self.parts.policy.verdict_on(tool, arguments, tenant=thread.tenant, requester=call["requester"])
        if isinstance(judgement, Deny):
            return "A person edited this call, but a policy denies the edited call; it was not run."
        digest = digests.args_digest_for(
            thread,
            approval_id=call["approval_id"],
            tool=call["tool"],
            arguments=arguments,
            policy_version=self.parts.policy.version_of(thread.tenant),
        )
        return {**call, "arguments": arguments, "args_digest": digest, "asked": True, "edited": True}


def answer(call: Call, *, text: str, ok: bool) -> ToolMessage:
    """The one tool message of a call."""
    return calls.answer_to(call["call_id"], message_id=call["message_id"], tool=call["tool"], text=text, ok=ok)


def executed(call: Call, *, status: str, result: str) -> ExecutedRecord:
    """What approvers are told about a call."""
    return ExecutedRecord(
        tool=call["tool"], arguments=call["arguments"], args_digest=call["args_digest"], status=status, result=result
    )


def _add(plan: _Plan, call: Call, decision: DecisionRecord | None, ruled: Call | str) -> None:
    if not isinstance(ruled, str):
        plan.runs.append(ruled)
        return
    plan.answers.append(answer(call, text=ruled, ok=decision is not None and decision["decision"] == "respond"))
    if decision is not None:
        plan.executed[call["approval_id"]] = executed(call, status="not_run", result=ruled)


def _tell_the_rest(plan: _Plan, state: AgentState) -> None:
    """Account for decisions whose call the build no longer knows, so that no approver waits for ever."""
    known = {*state.get("executed", {}), *plan.executed, *(call["approval_id"] for call in plan.runs)}
    for approval_id, decision in state.get("decisions", {}).items():
        if decision["query_id"] == state["query_id"] and approval_id not in known:
            plan.executed[approval_id] = ExecutedRecord(
                tool=decision["tool"],
                arguments=decision["arguments"],
                args_digest=decision["args_digest"],
                status="not_run",
                result=NOT_DECIDED,
            )


def _allowed(judged: Judged) -> tuple[Decision, ...]:
    # What the policy no longer asks about was decided under its older rule.
    return judged.judgement.allowed_decisions if isinstance(judged.judgement, Ask) else EVERY_DECISION


def is_cancelled(state: AgentState) -> bool:
    """Whether the current query was called off while it waited."""
    decisions = state.get("decisions", {}).values()
    return any(decision["decision"] == CANCEL and decision["query_id"] == state["query_id"] for decision in decisions)


def _asks(judged: Judged | Problem) -> TypeGuard[Judged]:
    return isinstance(judged, Judged) and isinstance(judged.judgement, Ask)


def _turn(state: AgentState) -> AIMessage | None:
    """The model's turn that ordered the open calls. Answers of the same step may stand behind it already."""
    for message in reversed(state["messages"]):
        if isinstance(message, AIMessage):
            return message if history.call_ids(message) else None
        if not isinstance(message, ToolMessage):
            return None
    return None


def _earlier_decisions(state: AgentState, tool: str) -> list[dict[str, Any]]:
    return [
        {
            "approval_id": approval_id,
            "decision": decision["decision"],
            "arguments": decision["edited_arguments"] or decision["arguments"],
            "approver": decision["approver"],
        }
        for approval_id, decision in state.get("decisions", {}).items()
        if decision["tool"] == tool and decision["decision"] != CANCEL
    ]
