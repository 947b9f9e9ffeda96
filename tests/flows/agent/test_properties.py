"""P9 through the whole agent: whatever turns, pieces and deaths there were, the last attempt is the answer."""

from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from flows.agent.gate import Gate
from flows.agent.parts import AgentParts
from flows.agent.tools import Toolset
from flows.streaming import storable_text
from tests.fakes.agents import THREAD, World, adds_up, only
from tests.fakes.chat_model import FakeChatModel, Script, Turn, call, say
from tests.fakes.clock import FakeClock
from tests.fakes.ledger import CrashError
from topics import events
from topics.errors import UnavailableError

PIECES = st.lists(st.text(st.sampled_from(["a", "é", "\ud83d", "\ude00", "\U0001f469", "\u200d", "\x00"]), max_size=4), max_size=5)
ORDERS = st.sampled_from([("c", "read_order", {"order": "1"}), ("c", "close_account", {"user": "u"}), ("c", "nothing", {})])
BEFORE = st.one_of(
    st.builds(lambda pieces, order: call(order, text=pieces), PIECES, ORDERS),
    st.builds(lambda pieces: Turn(text=pieces, error=CrashError()), PIECES),
    st.builds(lambda pieces: Turn(text=pieces, error=UnavailableError()), PIECES),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(BEFORE, max_size=4), PIECES)
async def test_the_deltas_of_the_highest_attempt_are_the_answer(before: list[Turn], last: list[str]):
    pieces = [*last, "."]
    world = World(script=Script(turns=[*before, say(*pieces)]), clock=FakeClock(step_s=0.02))
    for _ in range(2 * len(before) + 1):
        waiting = (await world.agent().status(THREAD)).pending
        try:
            await (world.resume(waiting[0]) if waiting else world.ask())
        except (CrashError, UnavailableError):
            continue
        if only(events.AnswerCompleted, world.told):
            break

    # What was published before a death stays published.
    assert adds_up(world.told).text == storable_text("".join(pieces))
    ids = [payload.identity() for payload in only(events.AnswerDelta, world.told)]
    assert len(ids) == len(set(ids))


def _gate() -> Gate:
    world = World()
    parts = AgentParts(
        model=FakeChatModel(script=world.script),
        toolset_for=lambda _tenant: Toolset("shop", "", world.tools),
        service=world.service,
        retriever=world.retriever,
        ledger=world.ledger,
        clock=world.clock,
    )
    return Gate(parts, "1")


def test_a_state_that_no_rule_knows_is_repaired_and_counted():
    turn = AIMessage("", id="a", tool_calls=[{"type": "tool_call", "id": id_, "name": "t", "args": {}} for id_ in ("x", "y")])
    answered = ToolMessage("r", tool_call_id="x")
    state = {"messages": [HumanMessage("q"), turn, answered], "model_calls": 4, "outcome": None}

    repaired = _gate().repair(state)

    assert [message.tool_call_id for message in repaired["messages"]] == ["y"]
    assert repaired["model_calls"] == 5
    assert _gate().after_model({"messages": [HumanMessage("q")], "outcome": None}, None) == "repair"
