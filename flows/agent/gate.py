"""The gate: which calls wait for a person, and what may run once all have been decided. No effect happens here."""

from dataclasses import dataclass
from typing import Any, Literal, cast

from langgraph.runtime import Runtime
from langgraph.types import Command, Send, interrupt

from flows import history
from flows.agent import calls, folding, search
from flows.agent.parts import AgentParts
from flows.agent.plan import NOT_DECIDED, Planner, open_turn
from flows.agent.state import AgentState, DecisionRecord, RunContext

GATE = "gate"


@dataclass(frozen=True, slots=True)
class Gate:
    """The nodes and edges between a model's turn and its tools."""

    parts: AgentParts
    graph_version: str

    def after_model(
        self, state: AgentState, runtime: Runtime[RunContext]
    ) -> list[Send] | Literal["dispatch", "repair", "fold", "end"]:
        """Ask about each call that asks, each in a task of its own; none asks: go on."""
        if folding.is_due(state, self.parts.limits):
            return "fold"
        if state.get("outcome") is not None:
            return "end"
        if open_turn(state) is None:
            return "repair"
        return [Send(GATE, request) for request in self._planner(state, runtime).first_requests()] or "dispatch"

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
            on_new_message=request["terms"]["on_new_message"],
        )
        return {"decisions": {request["approval_id"]: record}}

    def after_fold(self, state: AgentState) -> Literal["model", "end"]:
        """Go back to the call that was to be made, or end where the query has."""
        return "model" if state.get("outcome") is None else "end"

    def dispatch(self, state: AgentState, runtime: Runtime[RunContext]) -> Command[Literal["execute", "search", "model"]]:
        """All are decided: send what may run, answer the rest; or ask again, and nothing else with it."""
        plan = self._planner(state, runtime).plan()
        if plan.requests:
            update = {"asking": state.get("asking", 0) + 1, "executed": plan.executed}
            return Command(update=update, goto=[Send(GATE, request) for request in plan.requests])
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

    def _planner(self, state: AgentState, runtime: Runtime[RunContext]) -> Planner:
        return Planner(self.parts, self.graph_version, runtime.context.thread, state)
