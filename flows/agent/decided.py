"""What the decisions that a thread keeps say about its calls. Pure reading of the state."""

from collections.abc import Iterator
from typing import Final

from flows import history
from flows.agent import digests
from flows.agent.state import AGAIN, CANCEL, EXPIRED, REVISED, AgentState, Call, DecisionRecord, ThreadRef

NEW_MESSAGE: Final = "new_message"
SUPERSEDED: Final = "superseded"
POLICY_CHANGED: Final = "policy_changed"

CALLED_OFF: Final = "Not run: the request was called off."

_TEXTS: Final = {
    CANCEL: CALLED_OFF,
    EXPIRED: "Not run: nobody decided in time.",
    REVISED: "Not run: the customer wrote again before anybody decided. Read the new message; repeat only what is still wanted.",
}
_WROTE_AGAIN: Final = "Not run: the customer wrote again before anybody decided, and the request was called off."


def called_off(state: AgentState) -> DecisionRecord | None:
    """What called the current query off, or None."""
    records = state.get("decisions", {}).values()
    ours = (record for record in records if record["query_id"] == state["query_id"])
    return next((record for record in ours if record["decision"] in _TEXTS), None)


def called_off_text(record: DecisionRecord) -> str:
    """What the model reads about a call of a query that was called off."""
    return _WROTE_AGAIN if record["message"] == NEW_MESSAGE else _TEXTS[record["decision"]]


def ending_code(record: DecisionRecord) -> str:
    """How a query that was called off ends."""
    return "superseded" if record["decision"] == REVISED else "cancelled"


def wrote_again(state: AgentState) -> bool:
    """Whether the current query was set aside by a newer message."""
    record = called_off(state)
    return record is not None and record["message"] in {NEW_MESSAGE, SUPERSEDED}


def open_doubts(state: AgentState) -> list[Call]:
    """Calls whose effect is in doubt, and that have no answer yet."""
    unanswered = set(history.open_call_ids(state["messages"]))
    return [call for call_id, call in state.get("doubts", {}).items() if call_id in unanswered]


def approval_ids(thread: ThreadRef, call: Call, asking: int) -> list[str]:
    """Under which ids a call was asked about, the latest first."""
    earlier = range(asking, -1, -1)
    if call["effect_key"] is not None:
        key, attempt = call["effect_key"], call["attempt"]
        return [digests.doubt_id_for(thread, effect_key=key, attempt=attempt, asking=one) for one in earlier]
    place, tool, arguments = call["message_id"], call["tool"], call["arguments"]
    return [digests.approval_id_for(thread, message_id=place, tool=tool, arguments=arguments, asking=one) for one in earlier]


def standing_decision(state: AgentState, ids: list[str]) -> tuple[str, DecisionRecord] | None:
    """The latest decision of a person on a call, with its approval id."""
    decisions = state.get("decisions", {})
    return next(((one, decisions[one]) for one in ids if one in decisions and decisions[one]["decision"] != AGAIN), None)


def superseded_by(state: AgentState, call: Call, earlier_ids: list[str]) -> str | None:
    """The request that one about this call takes the place of: an earlier asking, or what a newer message set aside."""
    decisions = state.get("decisions", {})
    if (before := next((one for one in earlier_ids if one in decisions), None)) is not None:
        return before
    found = list(_set_aside(state, call["tool"]))
    alike = [approval_id for approval_id, record in found if record["arguments"] == call["arguments"]]
    return next(iter([*alike, *(approval_id for approval_id, _ in found)]), None)


def _set_aside(state: AgentState, tool: str) -> Iterator[tuple[str, DecisionRecord]]:
    """The tool's requests that were set aside since somebody last decided on it, the latest first."""
    for approval_id, record in reversed(state.get("decisions", {}).items()):
        if record["tool"] != tool:
            continue
        if record["decision"] != REVISED:
            return
        yield approval_id, record
