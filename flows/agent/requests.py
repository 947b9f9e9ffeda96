"""What is shown to people: an `ApprovalRequested` as JSON, all but the interrupt's id, which only LangGraph knows."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from flows.agent import decided, digests
from flows.agent.parts import AgentParts
from flows.agent.prompt_version import prompt_version_of
from flows.agent.state import AgentState, Call, ThreadRef
from flows.agent.tools import Tool
from flows.approvals.policy import Ask
from topics import sizes
from topics.events import Decision, Terms

REAL_DECISIONS: Final = frozenset({"approve", "edit", "reject", "respond"})
DOUBT_DECISIONS: Final[tuple[Decision, ...]] = ("approve", "respond", "reject")
IN_DOUBT_REASON: Final = (
    "Whether this call took effect is unknown: an earlier try was cut off. approve: run it again; "
    "respond: tell what came of it; reject: give up."
)


@dataclass(frozen=True, slots=True)
class Requests:
    """Makes requests of one thread."""

    parts: AgentParts
    graph_version: str
    thread: ThreadRef
    state: AgentState

    def of_call(self, call: Call, tool: Tool, ask: Ask, *, reason: str) -> dict[str, Any]:
        """The request about a call that asks. `call` carries the approval id of this asking."""
        return {
            **self._shown(call, tool),
            "kind": "call",
            "allowed_decisions": list(ask.allowed_decisions),
            "amount": ask.amount,
            "reason": reason[: sizes.MAX_REASON_CHARS],
            **self._in_time(ask.terms),
        }

    def of_doubt(self, doubt: Call, tool: Tool, ask: Ask | None, *, before: str | None) -> dict[str, Any]:
        """The request about a call whose effect is in doubt. A new message never calls it off: what happened must be found out.

        Args:
            doubt: The call, with the approval id of this asking.
            tool: Its tool.
            ask: What the policy says of the call; None when it asks nobody.
            before: The approval under which it was tried.
        """
        terms = (ask.terms if ask else Terms()).model_copy(update={"on_new_message": "hold"})
        return {
            **self._shown(doubt, tool),
            "supersedes": before,
            "kind": "in_doubt",
            "allowed_decisions": list(DOUBT_DECISIONS),
            "amount": ask.amount if ask else None,
            "reason": IN_DOUBT_REASON,
            **self._in_time(terms),
        }

    def _shown(self, call: Call, tool: Tool) -> dict[str, Any]:
        earlier_ids = decided.approval_ids(self.thread, call, self.state.get("asking", 0) + 1)
        return {
            "approval_id": call["approval_id"],
            "thread_id": self.thread.thread_id,
            "query_id": call["query_id"],
            "tool": call["tool"],
            "tool_class": tool.effect,
            "arguments": call["arguments"],
            "args_digest": call["args_digest"],
            "policy_version": self.parts.policy.version_of(self.thread.tenant),
            "graph_version": self.graph_version,
            "prompt_version": prompt_version_of(self.parts.toolset(self.thread.tenant).instructions),
            "requester": call["requester"],
            "supersedes": decided.superseded_by(self.state, call, [one for one in earlier_ids if one != call["approval_id"]]),
            "history": _earlier_decisions(self.state, call["tool"])[-sizes.MAX_EARLIER_DECISIONS :],
        }

    def _in_time(self, terms: Terms) -> dict[str, Any]:
        now = self.parts.clock.now()
        ends = None if terms.expires_after_s is None else now + timedelta(seconds=terms.expires_after_s)
        return {
            "terms": terms.model_dump(mode="json"),
            "requested_at": now.isoformat(),
            "expires_at": None if ends is None else ends.isoformat(),
        }


def asked_about(parts: AgentParts, thread: ThreadRef, call: Call, approval_id: str) -> Call:
    """A call under the approval id of one asking, with the digest that goes with it."""
    digest = digests.args_digest_for(
        thread,
        approval_id=approval_id,
        tool=call["tool"],
        arguments=call["arguments"],
        policy_version=parts.policy.version_of(thread.tenant),
    )
    return {**call, "approval_id": approval_id, "args_digest": digest}


def _earlier_decisions(state: AgentState, tool: str) -> list[dict[str, Any]]:
    return [
        {
            "approval_id": approval_id,
            "decision": record["decision"],
            "arguments": record["edited_arguments"] or record["arguments"],
            "approver": record["approver"],
        }
        for approval_id, record in state.get("decisions", {}).items()
        if record["tool"] == tool and record["decision"] in REAL_DECISIONS
    ]
