"""Conversations are cut between exchanges and never inside one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately

from flows.history import MalformedHistoryError, check_history, exchanges, fit_history, open_call_ids
from tests.fakes.chat_model import BadRequestError, refuse_malformed


def _ai(*ids: str) -> AIMessage:
    return AIMessage("", tool_calls=[{"type": "tool_call", "id": call_id, "name": "t", "args": {}} for call_id in ids])


def _tool(call_id: str) -> ToolMessage:
    return ToolMessage("r", tool_call_id=call_id)


@st.composite
def _conversations(draw: st.DrawFn) -> list[AnyMessage]:
    messages: list[AnyMessage] = [SystemMessage("rules")] if draw(st.booleans()) else []
    for number in range(draw(st.integers(1, 6))):
        messages.append(HumanMessage("q" * draw(st.integers(0, 400)), id=f"q{number}"))
        for turn in range(draw(st.integers(0, 2))):
            ids = [f"{number}.{turn}.{index}" for index in range(draw(st.integers(1, 3)))]
            messages += [_ai(*ids), *(_tool(call_id) for call_id in draw(st.permutations(ids)))]
        messages.append(AIMessage("a" * draw(st.integers(0, 400))))
    return messages


@given(_conversations(), st.integers(0, 600))
def test_what_is_kept_is_the_newest_whole_exchanges_that_fit(messages, budget_tokens):
    kept = fit_history(messages, budget_tokens)
    check_history(kept)
    system = [message for message in messages[:1] if isinstance(message, SystemMessage)]
    assert kept[: len(system)] == system
    rest, all_exchanges = kept[len(system) :], exchanges(messages[len(system) :])
    count = len(exchanges(rest))
    assert rest == [message for exchange in all_exchanges[-count:] for message in exchange]
    assert count == 1 or count_tokens_approximately(kept) <= budget_tokens + len(all_exchanges)
    if count < len(all_exchanges):
        assert count_tokens_approximately([*all_exchanges[-count - 1], *kept]) > budget_tokens - len(all_exchanges)


MESSAGES = st.lists(
    st.one_of(
        st.just(HumanMessage("q")),
        st.lists(st.sampled_from("abc"), max_size=2).map(lambda ids: _ai(*ids)),
        st.sampled_from("abc").map(_tool),
    ),
    max_size=7,
)


@given(MESSAGES)
def test_what_a_provider_would_refuse_is_refused_before_it_is_sent(messages):
    try:
        refuse_malformed(messages)
    except BadRequestError:
        with pytest.raises(MalformedHistoryError):
            check_history(messages)


def test_open_calls_are_found_in_order():
    assert open_call_ids([HumanMessage("q"), _ai("a", "b", "c"), _tool("b")]) == ["a", "c"]
    assert fit_history([], 10) == []
