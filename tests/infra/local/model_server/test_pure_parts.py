"""Properties of the parts that compute."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, ValidationError, create_model

from infra.local.model_server import schemas, triage, words
from infra.local.model_server.completions import Reply, Stamp, ToolCall, deltas, pieces
from infra.local.model_server.faults import Fault, Pace, Script
from infra.local.model_server.limits import Limit, Limiter

STAMP = Stamp("chatcmpl-1", 0, "m")


@given(st.text())
def test_pieces_joined_are_the_text(text):
    assert "".join(pieces(text)) == text
    assert all(len(piece.strip()) <= 16 for piece in pieces(text))


@given(st.text(), st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers(-(2**40), 2**40)))
def test_deltas_joined_are_the_reply(text, arguments):
    reply = Reply(text=text, tool_calls=(ToolCall("f", arguments), ToolCall("g", "not json")))
    parts = list(deltas(STAMP, reply))
    assert "".join(part.get("content", "") for part in parts) == text
    for index, call in enumerate(reply.tool_calls):
        own = [piece for part in parts for piece in part.get("tool_calls", []) if piece["index"] == index]
        assert "".join(piece["function"]["arguments"] for piece in own) == call.arguments_json()
        assert [piece["id"] for piece in own if "id" in piece] == [f"call_1{index}"]


class Inner(BaseModel):
    size: int = Field(ge=3, le=5)
    ratio: float = Field(gt=1, lt=2)
    children: list["Inner"] = Field(max_length=1)


FIELDS: list[Any] = [
    (str, Field(min_length=5, max_length=7)),
    (int | None, ...),
    (float, Field(ge=-3, le=-1)),
    (bool, ...),
    (list[int], Field(min_length=3)),
    (Inner, ...),
    (dict[str, int], ...),
]


@given(st.lists(st.sampled_from(FIELDS), max_size=7), st.text())
def test_an_instance_is_valid_for_its_schema(fields, text):
    model = create_model("Model", **{f"field_{index}": field for index, field in enumerate(fields)})
    try:
        model.model_validate(schemas.instance(model.model_json_schema(), text=text))
    except ValidationError as error:
        pytest.fail(str(error))


@given(st.text(), st.integers(10, 200))
def test_a_first_sentence_keeps_its_bound(text, bound):
    assert len(words.first_sentence(text, max_chars=bound)) <= bound


@given(st.text())
def test_sentences_lose_no_word(text):
    assert "".join("".join(words.sentences(text)).split()) == "".join(text.split())


@given(st.lists(st.integers(0, 3), max_size=8), st.lists(st.integers(1, 3), min_size=8, max_size=8))
def test_scripted_items_are_taken_in_order_as_often_as_they_say(skips, times):
    faults = [Fault(kind="delay", text=str(i), skip=0, times=t) for i, (_, t) in enumerate(zip(skips, times, strict=False))]
    script: Script[Fault] = Script()
    script.add(faults)
    taken = [script.take([""], lambda _: True) for _ in range(sum(fault.times or 0 for fault in faults))]
    assert taken == [fault for fault in faults for _ in range(fault.times or 0)]
    assert script.take([""], lambda _: True) is None
    assert len(script) == 0


@given(st.lists(st.floats(0, 5), max_size=60), st.integers(1, 5))
def test_a_limiter_never_admits_more_than_the_rate_and_the_burst(gaps, burst):
    limiter = Limiter(Limit(requests_per_minute=60, burst=burst))
    now_s, admitted = 1000.0, []
    for gap in gaps:
        now_s += gap
        wait_s = limiter.wait_s(now_s)
        if wait_s:
            assert Limiter(limiter.limit, limiter._ready_s).wait_s(now_s + wait_s) == 0
        else:
            admitted.append(now_s)
    for start in admitted:
        within = [at for at in admitted if start <= at <= start + 10]
        assert len(within) <= 10 + burst


@given(st.lists(st.floats(0, 3), max_size=60), st.integers(1, 5))
def test_a_sliding_window_never_holds_more_than_the_limit_and_is_used_up_at_once(gaps, most):
    limiter = Limiter(Limit(requests_per_window=most, window_s=10))
    now_s, admitted = 1000.0, []
    for gap in gaps:
        now_s += gap
        within = [at for at in admitted if now_s - 10 < at]
        wait_s = limiter.wait_s(now_s)
        assert (wait_s == 0) == (len(within) < most)
        if not wait_s:
            admitted.append(now_s)


def test_tokens_are_due_evenly_after_the_first():
    pace = Pace(first_token_ms=500, tokens_per_s=10)
    assert [pace.due_s(token) for token in (0, 1, 5)] == [0.5, 0.6, 1.0]
    assert Pace().due_s(100) == 0


@pytest.mark.parametrize(
    ("ticket", "priority"),
    [
        ("Someone stole my card!", "urgent"),
        ("My transfer failed twice.", "high"),
        ("How do I change my PIN?", "low"),
        ("I would like a second card.", "normal"),
    ],
)
def test_priorities_follow_plain_rules(ticket, priority):
    assert triage.priority_of(ticket) == priority


def test_a_priority_that_is_not_allowed_gives_way_to_the_nearest():
    assert triage.nearest_priority("urgent", ["low", "high"]) == "high"
    assert triage.nearest_priority("normal", ["P1", "P2", "P3"]) == "P2"


def test_labels_and_tags_are_no_part_of_a_ticket():
    assert triage.ticket_text("<ticket>\nSubject: Lost\nBody: It is gone\n</ticket>") == "Lost\nIt is gone"
