"""Of many tools a turn sees a few; the rest exist, are named, and are shown once they were called."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from bench import tool_router
from bench.forty_tools import FORTY
from flows.agent import router, search
from flows.agent.tools import Toolset
from flows.toolsets import retail
from tests.fakes.agents import TOOLS, World, adds_up, one
from tests.fakes.chat_model import Script, call, say
from topics.events import ApprovalRequested

ALL = (search.TOOL, *FORTY.tools)
NAMES = [tool.name for tool in ALL]


def shown(*messages: AnyMessage, pinned: tuple[str, ...] = ()) -> list[str]:
    return [tool.name for tool in router.shown_tools(ALL, messages, pinned=pinned)]


def step(name: str, result: str, call_id: str = "c") -> list[AnyMessage]:
    asked: Any = {"type": "tool_call", "id": call_id, "name": name, "args": {}}
    return [AIMessage("", tool_calls=[asked]), ToolMessage(result, tool_call_id=call_id, name=name)]


@pytest.mark.parametrize(
    ("asked", "tool"),
    [
        ("Please cancel my pending order, it is no longer needed.", "cancel_pending_order"),
        ("My phone was stolen, suspend the line!", "suspend_line"),
        ("Is the flight LH12 delayed today?", "get_flight_status"),
        ("Block my bank card.", "block_card"),
    ],
)
def test_the_tool_that_the_words_are_about_is_shown(asked: str, tool: str):
    assert tool in shown(HumanMessage(asked))


def test_a_small_toolset_is_shown_whole():
    """The shop's own sixteen are few enough."""
    tools = (search.TOOL, *retail.toolset.tools)
    assert router.shown_tools(tools, [HumanMessage("Hello")]) == tools


def test_what_a_result_makes_possible_is_shown_next():
    talk = [HumanMessage("Where is it?"), *step("get_user_details", '{"name": "Kim", "orders": ["#W1"]}')]
    assert "get_order_details" in shown(*talk)


def test_what_a_conversation_begins_with_is_pinned_until_it_has_begun():
    pinned = FORTY.pinned
    assert {*pinned} <= {*shown(HumanMessage("Suspend my line and cancel flights"), pinned=pinned)}
    talk = [HumanMessage("Suspend my line"), *step(pinned[0], "kim_1"), *step("suspend_line", "done", "d")]
    assert not {*pinned} & {*shown(*talk, pinned=pinned)}


TALK = st.lists(
    st.one_of(
        st.text(max_size=80).map(lambda text: [HumanMessage(text)]),
        st.tuples(st.sampled_from([*NAMES, "unknown"]), st.text(max_size=80)).map(lambda one: step(*one)),
    ),
    max_size=8,
).map(lambda parts: [message for part in parts for message in part])


@given(TALK, st.sampled_from([(), FORTY.pinned]))
def test_never_more_than_six_with_the_search_and_what_was_called_last_and_always_the_same(talk, pinned):
    names = shown(*talk, pinned=pinned)
    assert len(names) == router.MAX_SHOWN
    assert names[0] == search.TOOL.name
    assert sorted(names, key=NAMES.index) == names
    if talk and isinstance(talk[-1], ToolMessage) and talk[-1].name in NAMES:
        assert talk[-1].name in names
    assert shown(*talk, pinned=pinned) == names


class Crowd(World):
    """The small world's tools among many others."""

    def agent(self):
        self.tools = (*TOOLS, *FORTY.tools)
        return super().agent()


async def test_the_model_is_bound_to_six_and_told_the_names_of_the_others():
    own = Crowd(script=Script(turns=[say("Yes.")]))
    adds_up(await own.ask("Read order 7"))
    assert len(own.script.tools) == router.MAX_SHOWN
    assert "read_order" in own.script.tools
    system = own.script.prompts[0][0].text
    hidden = {tool.name for tool in own.tools} - set(own.script.tools)
    assert hidden
    assert all(name in system for name in hidden)


async def test_a_tool_that_is_not_shown_can_be_called_by_name_and_is_shown_to_repair_the_call():
    bound: list[list[str]] = []
    turns = iter([call(("c1", "wire_money", {"euros": 5})), call(("c2", "wire_money", {"cents": 500})), say("Sent.")])
    own = Crowd(script=Script())

    def answer(_messages):
        bound.append(own.script.tools)
        return next(turns)

    own.script.answer = answer
    request = one(ApprovalRequested, await own.ask("Block my bank card"))
    assert "wire_money" not in bound[0]
    assert "wire_money" in bound[1], "the way back"
    assert request.arguments == {"cents": 500}, "and it asks, as it always does"
    adds_up(await own.resume(request))
    assert own.effects()[0][0] == "wire"


async def test_a_toolset_cannot_pin_what_it_does_not_have():
    with pytest.raises(ValueError, match="pinned"):
        Toolset("t", "", TOOLS, pinned=("nothing",))


def test_most_calls_of_solutions_that_chose_no_weights_find_their_tool_shown_for_a_fraction_of_the_tokens():
    figures = tool_router.measure()
    assert figures["tools_shown_max"] <= router.MAX_SHOWN
    assert figures["tool_hits"] >= 0.85
    assert figures["tool_tokens_saved"] >= 0.7
