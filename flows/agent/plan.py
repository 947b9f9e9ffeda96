"""What may run once everybody has decided, what answers the rest, and what must be asked again. Pure.

A decision counts under the policy that it was taken under. Where that changed, a rejection and a response still stand, since
they run nothing; an approval is asked about again, or does as the new policy says where that asks nobody.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from langchain_core.messages import AIMessage, ToolMessage

from flows import history
from flows.agent import calls, decided
from flows.agent.calls import Judged, Problem
from flows.agent.parts import AgentParts
from flows.agent.requests import REAL_DECISIONS, Requests, asked_about
from flows.agent.state import AgentState, Call, DecisionRecord, ExecutedRecord, ThreadRef
from flows.approvals.policy import Allow, Ask, Deny
from topics.text import shorten

MAX_MESSAGE_CHARS: Final = 4_000
NOT_DECIDED: Final = "Not run: there is no valid decision on this call."
ASKED_AGAIN: Final = "Not run: the policy changed before it ran; it is asked about again."
EDIT_OUTDATED: Final = (
    "Not run: a person edited this call, and the policy changed before it ran. Call it again if it is still wanted."
)
UNKNOWN: Final = "Whether an earlier try took effect is unknown."
GAVE_UP: Final = "A person gave it up without finding out what happened."
DENIED_NOW: Final = "It was not run again: a policy denies the call now."


@dataclass(slots=True)
class Plan:
    """Calls that run, answers to those that do not, what to tell approvers; and requests: with any, nothing else happens."""

    runs: list[Call] = field(default_factory=list[Call])
    answers: list[ToolMessage] = field(default_factory=list[ToolMessage])
    executed: dict[str, ExecutedRecord] = field(default_factory=dict[str, ExecutedRecord])
    requests: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def answer(self, call: Call, text: str, *, ok: bool = False, approval_id: str | None = None, status: str = "not_run") -> None:
        """Answer a call instead of running it, and tell whoever decided on it."""
        self.answers.append(answer(call, text=text, ok=ok))
        if approval_id is not None:
            self.executed[approval_id] = executed(call, status=status, result=text)


@dataclass(frozen=True, slots=True)
class Planner:
    """The open turn of one thread."""

    parts: AgentParts
    graph_version: str
    thread: ThreadRef
    state: AgentState

    @property
    def _asking(self) -> int:
        return self.state.get("asking", 0)

    def first_requests(self) -> list[dict[str, Any]]:
        """What to ask after a turn of the model: about effects in doubt, or else about each call that asks."""
        doubts = decided.open_doubts(self.state)
        if doubts:
            return [request for doubt in doubts if (request := self._doubt_request(doubt, self._asking)) is not None]
        return [
            self._requests.of_call(judged.call, judged.tool, judged.judgement, reason=self._reason())
            for judged in self._read()
            if isinstance(judged, Judged) and isinstance(judged.judgement, Ask)
        ]

    def plan(self) -> Plan:
        """Rule on every call of the turn that has no answer yet."""
        plan, unanswered = Plan(), set(history.open_call_ids(self.state["messages"]))
        doubts = {doubt["call_id"]: doubt for doubt in decided.open_doubts(self.state)}
        for one in self._read():
            call_id = one.call_id if isinstance(one, Problem) else one.call["call_id"]
            if call_id not in unanswered:
                continue
            if call_id in doubts:
                self._settle(plan, doubts[call_id])
            elif isinstance(one, Problem):
                plan.answers.append(one.answer())
            else:
                self._rule(plan, one)
        if not plan.requests:
            self._tell_the_rest(plan)
        return plan

    def _read(self) -> list[Judged | Problem]:
        turn = open_turn(self.state)
        if turn is None:
            return []
        return calls.read_calls(
            turn,
            thread=self.thread,
            query_id=self.state["query_id"],
            requester=self.state.get("user_id"),
            toolset=self.parts.toolset(self.thread.tenant),
            policy=self.parts.policy,
            limit=self.parts.limits.max_calls_per_turn,
            asking=self._asking,
        )

    def _rule(self, plan: Plan, judged: Judged) -> None:
        call, ids = judged.call, decided.approval_ids(self.thread, judged.call, self._asking)
        found = decided.standing_decision(self.state, ids)
        if (off := decided.called_off(self.state)) is not None:
            # One call-off is for the whole query: what was approved before it does not run either.
            plan.answer(call, decided.called_off_text(off), approval_id=_real(found))
        elif self.parts.call_offs.is_off(self.thread, self.state["query_id"]):
            plan.answer(call, decided.CALLED_OFF, approval_id=_real(found))
        elif found is not None:
            self._rule_by(plan, judged, *found)
        elif isinstance(judged.judgement, Ask):
            self._ask_again(plan, judged, judged.judgement)
        else:
            plan.runs.append(call)

    def _rule_by(self, plan: Plan, judged: Judged, approval_id: str, record: DecisionRecord) -> None:
        message = shorten(record["message"] or "", MAX_MESSAGE_CHARS)
        call, counts = self._under(judged.call, approval_id, record)
        ask = judged.judgement if isinstance(judged.judgement, Ask) else None
        match record["decision"]:
            case "reject":
                text = f"A person rejected this call; it was not run. Reason: {message or 'none given'}"
                plan.answer(call, text, approval_id=approval_id)
            case decision if counts and ask is not None and decision not in ask.allowed_decisions:
                plan.answer(call, NOT_DECIDED, approval_id=approval_id)
            case "respond":
                plan.answer(call, message or "A person answered without text.", ok=True, approval_id=approval_id)
            case "edit" if counts:
                self._run_edited(plan, judged, call, record)
            case "edit":
                plan.answer(call, EDIT_OUTDATED, approval_id=approval_id)
            case "approve" if counts or ask is None:
                plan.runs.append({**call, "asked": True})
            case "approve" if ask is not None:
                plan.executed[approval_id] = executed(judged.call, status="not_run", result=ASKED_AGAIN)
                self._ask_again(plan, judged, ask)
            case _:
                plan.answer(call, NOT_DECIDED, approval_id=approval_id)

    def _under(self, call: Call, approval_id: str, record: DecisionRecord) -> tuple[Call, bool]:
        """The call under the approval that was decided, and whether what was decided is what would run now."""
        asked = asked_about(self.parts, self.thread, call, approval_id)
        # An approval that was told as not run stays so, even when the old policy comes back.
        return asked, asked["args_digest"] == record["args_digest"] and approval_id not in self.state.get("executed", {})

    def _ask_again(self, plan: Plan, judged: Judged, ask: Ask) -> None:
        approval_id = decided.approval_ids(self.thread, judged.call, self._asking + 1)[0]
        call = asked_about(self.parts, self.thread, judged.call, approval_id)
        plan.requests.append(self._requests.of_call(call, judged.tool, ask, reason=self._reason()))

    def _run_edited(self, plan: Plan, judged: Judged, call: Call, record: DecisionRecord) -> None:
        """Run what a person made of a call, if it is valid and the policy does not deny it; who had to agree has agreed."""
        approval_id, tool = call["approval_id"], judged.tool
        try:
            arguments = calls.plain_arguments(tool, record["edited_arguments"])
        except calls.InvalidArgumentsError:
            text = "A person edited this call, but the edited arguments are invalid; it was not run."
            return plan.answer(call, text, approval_id=approval_id)
        if isinstance(self._word_on(call, arguments), Deny):
            text = "A person edited this call, but a policy denies the edited call; it was not run."
            return plan.answer(call, text, approval_id=approval_id)
        edited = asked_about(self.parts, self.thread, {**call, "arguments": arguments}, approval_id)
        plan.runs.append({**edited, "asked": True, "edited": True})
        return None

    def _settle(self, plan: Plan, doubt: Call) -> None:
        """Rule on a call whose effect is in doubt."""
        found = decided.standing_decision(self.state, decided.approval_ids(self.thread, doubt, self._asking))
        if (off := decided.called_off(self.state)) is not None:
            text = f"{decided.called_off_text(off)} {UNKNOWN}"
            return plan.answer(doubt, text, approval_id=_real(found), status="in_doubt")
        if found is None:
            return self._ask_about_doubt(plan, doubt)
        approval_id, record = found
        call, counts = self._under(doubt, approval_id, record)
        match record["decision"]:
            case "respond":
                told = shorten(record["message"] or "", MAX_MESSAGE_CHARS) or "A person found that it took effect."
                plan.runs.append({**call, "asked": True, "told": told})
            case "reject":
                plan.answer(call, f"{UNKNOWN} {GAVE_UP}", approval_id=approval_id, status="in_doubt")
            case "approve" if self.parts.call_offs.is_off(self.thread, self.state["query_id"]):
                plan.answer(call, f"{decided.CALLED_OFF} {UNKNOWN}", approval_id=approval_id, status="in_doubt")
            case "approve" if isinstance(self._word_on(doubt, doubt["arguments"]), Deny):
                plan.answer(call, f"{UNKNOWN} {DENIED_NOW}", approval_id=approval_id, status="in_doubt")
            case "approve" if counts:
                plan.runs.append({**call, "asked": True, "attempt": doubt["attempt"] + 1})
            case _:
                plan.executed[approval_id] = executed(doubt, status="not_run", result=ASKED_AGAIN)
                self._ask_about_doubt(plan, doubt)
        return None

    def _ask_about_doubt(self, plan: Plan, doubt: Call) -> None:
        request = self._doubt_request(doubt, self._asking + 1)
        if request is None:
            plan.answer(doubt, UNKNOWN)
        else:
            plan.requests.append(request)

    def _doubt_request(self, doubt: Call, asking: int) -> dict[str, Any] | None:
        tool = self.parts.tool(self.thread.tenant, doubt["tool"])
        if tool is None:
            return None
        call = asked_about(self.parts, self.thread, doubt, decided.approval_ids(self.thread, doubt, asking)[0])
        word = self._word_on(doubt, doubt["arguments"])
        before = doubt["approval_id"] if doubt["asked"] else None
        return self._requests.of_doubt(call, tool, word if isinstance(word, Ask) else None, before=before)

    def _word_on(self, call: Call, arguments: dict[str, Any]) -> Allow | Ask | Deny:
        tool, tenant = self.parts.tool(self.thread.tenant, call["tool"]), self.thread.tenant
        if tool is None:
            return Deny("there is no such tool")
        return self.parts.policy.verdict_on(tool, arguments, tenant=tenant, requester=call["requester"])

    def _tell_the_rest(self, plan: Plan) -> None:
        """Account for decisions whose call the build no longer knows, so that no approver waits for ever."""
        known = {*self.state.get("executed", {}), *plan.executed, *(call["approval_id"] for call in plan.runs)}
        for approval_id, record in self.state.get("decisions", {}).items():
            ours = record["query_id"] == self.state["query_id"] and record["decision"] in REAL_DECISIONS
            if ours and approval_id not in known:
                plan.executed[approval_id] = ExecutedRecord(
                    tool=record["tool"],
                    arguments=record["arguments"],
                    args_digest=record["args_digest"],
                    status="not_run",
                    result=NOT_DECIDED,
                )

    def _reason(self) -> str:
        turn = open_turn(self.state)
        return turn.text if turn else ""

    @property
    def _requests(self) -> Requests:
        return Requests(self.parts, self.graph_version, self.thread, self.state)


def open_turn(state: AgentState) -> AIMessage | None:
    """The model's turn that ordered the open calls. Answers of the same step may stand behind it already."""
    for message in reversed(state["messages"]):
        if isinstance(message, AIMessage):
            return message if history.call_ids(message) else None
        if not isinstance(message, ToolMessage):
            return None
    return None


def answer(call: Call, *, text: str, ok: bool) -> ToolMessage:
    """The one tool message of a call."""
    return calls.answer_to(call["call_id"], message_id=call["message_id"], tool=call["tool"], text=text, ok=ok)


def executed(call: Call, *, status: str, result: str) -> ExecutedRecord:
    """What approvers are told about a call."""
    return ExecutedRecord(
        tool=call["tool"], arguments=call["arguments"], args_digest=call["args_digest"], status=status, result=result
    )


def _real(found: tuple[str, DecisionRecord] | None) -> str | None:
    return found[0] if found is not None and found[1]["decision"] in REAL_DECISIONS else None
