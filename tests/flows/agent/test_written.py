"""Case 26 and its neighbours: what providers do to tool calls, undone before anything is stored."""

import json

from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk

from flows.agent.written import sendable_message, storable_message

IDS = st.sampled_from(["c1", "c2", "", None])
CALLS = st.lists(
    st.tuples(IDS, st.sampled_from(["refund", "note"]), st.sampled_from(['{"a": 1}', '{"a": 2}', "", '{"a": 4', "[1]"])), max_size=5
)


def _merged(*calls: tuple[str | None, str | None, str], indexes: list[int] | None = None) -> AIMessageChunk:
    merged = AIMessageChunk(content="")
    for number, (call_id, name, args) in enumerate(calls):
        index = indexes[number] if indexes else number
        piece = {"type": "tool_call_chunk", "id": call_id, "name": name, "args": args, "index": index}
        merged += AIMessageChunk(content="", tool_call_chunks=[piece])
    return merged


def _stored(raw: AIMessage, taken: frozenset[str] = frozenset()) -> AIMessage:
    return storable_message(raw, message_id="q1:0", taken_ids=taken)


@given(CALLS, st.sets(st.sampled_from(["c1", "c2"])))
def test_every_call_has_an_id_of_its_own_and_arguments_as_written(calls, taken):
    stored = _stored(_merged(*calls), frozenset(taken))
    kept = [*stored.tool_calls, *stored.invalid_tool_calls]
    ids = [call["id"] for call in kept]
    assert len(ids) == len(set(ids))
    assert all(ids)
    assert taken.isdisjoint(ids)
    written = {(name, args) for _, name, args in calls}
    assert {call["name"] for call in kept} == {name for name, _ in written}
    for call in stored.tool_calls:
        assert any(name == call["name"] and args in ("", json.dumps(call["args"])) for name, args in written)
    assert stored == _stored(_merged(*calls), frozenset(taken))


def test_a_call_sent_twice_under_one_index_is_one_call():
    stored = _stored(_merged(("c1", "refund", '{"a": 1}'), ("c1", "refund", '{"a": 1}'), indexes=[0, 0]))
    assert [(call["name"], call["args"]) for call in stored.tool_calls] == [("refund", {"a": 1})]


def test_two_calls_under_one_id_and_index_are_two_calls():
    stored = _stored(_merged(("c1", "refund", '{"a": 1}'), ("c1", "refund", '{"a": 2}'), indexes=[0, 0]))
    assert [(call["name"], call["args"]) for call in stored.tool_calls] == [("refund", {"a": 1}), ("refund", {"a": 2})]


def test_arguments_in_pieces_are_one_call():
    stored = _stored(_merged(("c1", "refund", '{"a'), (None, None, '": 1}'), indexes=[0, 0]))
    assert [call["args"] for call in stored.tool_calls] == [{"a": 1}]


def test_two_equal_orders_under_two_ids_stay_two():
    assert len(_stored(_merged(("c1", "refund", "{}"), ("c2", "refund", "{}"))).tool_calls) == 2


def test_arguments_that_were_cut_off_are_not_completed_and_are_sent_as_none():
    stored = _stored(_merged(("c1", "refund", '{"cents": 49')))
    assert stored.tool_calls == []
    assert stored.invalid_tool_calls[0]["args"] == '{"cents": 49'
    sent = sendable_message(stored)
    assert (sent.tool_calls[0]["args"], sent.invalid_tool_calls) == ({}, [])


def test_a_message_that_was_not_streamed_is_read_too():
    raw = AIMessage("", tool_calls=[{"type": "tool_call", "id": "c1", "name": "t", "args": {"a": 1}}], additional_kwargs={"x": 1})
    stored = _stored(raw)
    assert (stored.tool_calls[0]["args"], stored.additional_kwargs) == ({"a": 1}, {})
