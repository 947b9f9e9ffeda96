"""Requests and decisions in the shapes of others, and back: nothing is lost, and the shapes are theirs."""

import json
import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents.middleware.human_in_the_loop import Decision as TheirDecision
from langchain.agents.middleware.human_in_the_loop import HITLRequest, HITLResponse, ToolApprovalRequest
from pydantic import TypeAdapter

from flows.toolsets.retail import toolset
from topics.adapters import agent_inbox, langchain_hitl
from topics.adapters.actions import EVERY_DECISION, InexpressibleError, action_of
from topics.adapters.typed import typed_again
from topics.errors import MalformedError
from topics.events import ApprovalDecided, ApprovalRequested

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # they moved, and where they are said to be they are not
    from langgraph.prebuilt.interrupt import HumanInterrupt, HumanResponse

    INTERRUPTS: Any = TypeAdapter(list[HumanInterrupt])
    RESPONSES: Any = TypeAdapter(list[HumanResponse])

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(st.text(min_size=1, max_size=8), JSON, max_size=4)
TOOLS = st.sampled_from(["refund", "wire_money", "Überweisen 🙈"])


REQUEST = ApprovalRequested(
    approval_id="a1", thread_id="T-1", query_id="q", interrupt_id="i", tool="refund", tool_class="WRITE", arguments={"cents": 1},
    args_digest="d", policy_version="1", graph_version="1", allowed_decisions=("approve",),
)  # fmt: skip


@st.composite
def requests(draw: st.DrawFn) -> ApprovalRequested:
    allowed = draw(st.lists(st.sampled_from(EVERY_DECISION), unique=True))
    fields = {"approval_id": draw(st.uuids().map(str)), "tool": draw(TOOLS), "arguments": draw(ARGUMENTS)}
    fields |= {"reason": draw(st.text(max_size=20)), "allowed_decisions": tuple(allowed)}
    return REQUEST.model_copy(update=fields)


@st.composite
def decisions(draw: st.DrawFn, request: ApprovalRequested) -> ApprovalDecided:
    decision = draw(st.sampled_from(EVERY_DECISION))
    said: dict[str, Any] = {"decision": decision}
    match decision:
        case "edit":
            said |= {"tool": draw(TOOLS), "arguments": draw(ARGUMENTS)}
        case "reject":
            said |= {"message": draw(st.none() | st.text(max_size=20))}
        case "respond":
            said |= {"message": draw(st.text(max_size=20))}
        case _:
            pass
    about = {"approval_id": request.approval_id, "thread_id": request.thread_id, "args_digest": request.args_digest}
    return ApprovalDecided.model_validate(said | about | {"approver": "mia"})


@given(request=requests())
def test_a_request_comes_back_from_every_shape(request: ApprovalRequested):
    action = action_of(request)
    shown = INTERRUPTS.validate_python(agent_inbox.to_interrupt(request), strict=True)
    assert agent_inbox.from_interrupt(json.loads(json.dumps(shown))) == action
    assert agent_inbox.from_interrupt(shown[0]) == action, "an interrupt may come alone"
    one: Any = TypeAdapter(ToolApprovalRequest).validate_python(langchain_hitl.to_tool_approval(request), strict=True)
    assert langchain_hitl.from_tool_approval(json.loads(json.dumps(one)), allowed=action.allowed) == action


@given(several=st.lists(requests(), max_size=3))
def test_a_batch_of_requests_comes_back(several: list[ApprovalRequested]):
    """The same tool may be there twice, with other decisions allowed."""
    batch: Any = TypeAdapter(HITLRequest).validate_python(langchain_hitl.to_request(several), strict=True)
    assert langchain_hitl.from_request(json.loads(json.dumps(batch))) == [action_of(one) for one in several]


@given(data=st.data())
def test_a_decision_comes_back_from_every_shape(data: st.DataObject):
    request = data.draw(requests())
    said = data.draw(decisions(request))
    inbox = RESPONSES.validate_python(agent_inbox.to_response(said, request), strict=True)
    assert (
        agent_inbox.from_response(json.loads(json.dumps(inbox)), request, approver="mia").model_copy(
            update={"arguments": said.arguments}
        )
        == said
    ), "values of an edit are read as forms give them: see below"
    alone: Any = TypeAdapter(TheirDecision).validate_python(langchain_hitl.to_decision(said, request), strict=True)
    assert langchain_hitl.from_decision(json.loads(json.dumps(alone)), request, approver="mia") == said


@given(data=st.data())
def test_a_batch_of_decisions_comes_back_by_position(data: st.DataObject):
    several = data.draw(st.lists(requests(), max_size=3))
    said = [data.draw(decisions(request)) for request in several]
    batch: Any = TypeAdapter(HITLResponse).validate_python(langchain_hitl.to_response(said, several), strict=True)
    assert langchain_hitl.from_response(json.loads(json.dumps(batch)), several, approver="mia") == said


def as_a_form(arguments: dict[str, Any]) -> dict[str, Any]:
    """The inbox shows values as text and gives text back."""
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in arguments.items()}


@given(arguments=ARGUMENTS)
def test_what_a_form_did_not_change_has_its_types_again(arguments: dict[str, Any]):
    again = typed_again(as_a_form(arguments), original=arguments)
    assert json.dumps(again, sort_keys=True) == json.dumps(arguments, sort_keys=True)


@given(arguments=ARGUMENTS, request=requests())
def test_a_call_that_is_accepted_as_it_was_shown_is_approved(arguments: dict[str, Any], request: ApprovalRequested):
    request = request.model_copy(update={"arguments": arguments})
    value = [{"type": "accept", "args": {"action": request.tool, "args": as_a_form(arguments)}}]
    assert agent_inbox.from_response(value, request, approver="mia").decision == "approve"
    value = [{"type": "accept", "args": {"action": request.tool, "args": {**arguments, "more": 1}}}]
    with pytest.raises(MalformedError):
        agent_inbox.from_response(value, request.model_copy(update={"arguments": {}}), approver="mia")


SCHEMA = {
    "properties": {
        "cents": {"type": "integer"},
        "rate": {"type": "number"},
        "sure": {"type": "boolean"},
        "items": {"type": "array", "items": {"type": "string"}},
        "about": {"$ref": "#/$defs/About"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "free": {},
    },
    "$defs": {"About": {"type": "object"}},
}
ORIGINAL = {"cents": 4990, "rate": 0.5, "sure": True, "items": ["a"], "about": {"x": 1}, "note": None, "limit": None, "free": [1]}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("cents", "100", 100),
        ("cents", "4990", 4990),
        ("cents", "1e400", "1e400"),
        ("cents", "10.5", "10.5"),
        ("cents", "true", "true"),
        ("cents", "many", "many"),
        ("rate", "1", 1),
        ("rate", "0.25", 0.25),
        ("rate", "NaN", "NaN"),
        ("sure", "false", False),
        ("sure", "0", "0"),
        ("items", '["a", "b"]', ["a", "b"]),
        ("items", "a, b", "a, b"),
        ("about", '{"x": 2}', {"x": 2}),
        ("note", "null", None),
        ("note", "7", "7"),
        ("limit", "5", 5),
        ("limit", "null", None),
        ("free", "[true]", "[true]"),
        ("free", "[1]", [1]),
    ],
)
def test_what_a_form_changed_is_read_by_the_tool_s_schema_and_else_left_for_the_check(name: str, text: str, value: Any):
    found = typed_again({name: text}, original=ORIGINAL, schema=SCHEMA)[name]
    assert (type(found), found) == (type(value), value)


def test_without_a_schema_the_type_of_what_was_shown_is_wanted():
    assert typed_again({"cents": "100", "new": "5"}, original=ORIGINAL) == {"cents": 100, "new": "5"}


def test_every_retail_tool_takes_its_own_arguments_back_from_a_form():
    for tool in toolset.tools:
        schema = tool.arguments.model_json_schema()
        sample = {name: _example(one) for name, one in schema["properties"].items()}
        changed = {name: [*value, "more"] if isinstance(value, list) else f"{value}x" for name, value in sample.items()}
        assert typed_again(as_a_form(changed), original=sample, schema=schema) == changed, tool.name


def _example(schema: dict[str, Any]) -> Any:
    return ["a"] if schema.get("type") == "array" else "text"


def test_an_edit_that_names_another_tool_says_so_and_is_not_mended():
    """Case 36: the worker refuses it."""
    batch = {"decisions": [{"type": "edit", "edited_action": {"name": "wire_money", "args": {"cents": 1}}}]}
    (said,) = langchain_hitl.from_response(batch, [REQUEST], approver="mia")
    inbox = [{"type": "edit", "args": {"action": "wire_money", "args": {"cents": "1"}}}]
    assert said.tool == agent_inbox.from_response(inbox, REQUEST, approver="mia").tool == "wire_money"


@pytest.mark.parametrize("decision", ["approve", "edit"])
def test_what_a_shape_has_no_place_for_is_refused_and_not_dropped(decision: str):
    said = ApprovalDecided.model_validate(
        {"approval_id": "a1", "thread_id": "T-1", "decision": decision, "args_digest": "d", "approver": "mia", "message": "ok"}
    )
    for convert in (agent_inbox.to_response, langchain_hitl.to_decision):
        with pytest.raises(InexpressibleError):
            convert(said, REQUEST)


@pytest.mark.parametrize(
    "value",
    [None, 7, "accept", [], [{}], [{"type": "accept"}, {"type": "accept"}], {"type": "yes"}, {"type": "edit"}, {"type": "response"},
     {"type": "edit", "args": "x"}, {"type": "edit", "args": {"action": 1}}, {"type": "ignore", "args": 7},
     {"type": "accept", "args": "x"}],
)  # fmt: skip
def test_what_is_no_human_response_is_told(value: Any):
    with pytest.raises(MalformedError):
        agent_inbox.from_response(value, REQUEST, approver="mia")


@pytest.mark.parametrize(
    "value",
    [None, [], {}, {"decisions": 1}, {"decisions": []}, {"decisions": [{}]}, {"decisions": [{"type": "approve"}] * 2},
     {"decisions": [{"type": "edit"}]}, {"decisions": [{"type": "edit", "edited_action": {"args": {}}}]},
     {"decisions": [{"type": "respond"}]}, {"decisions": [{"type": "reject", "message": 7}]}],
)  # fmt: skip
def test_what_is_no_hitl_response_is_told(value: Any):
    with pytest.raises(MalformedError):
        langchain_hitl.from_response(value, [REQUEST], approver="mia")


@pytest.mark.parametrize(
    "value", [None, {}, {"action_requests": [{"name": "x", "args": {}}], "review_configs": []}, {"type": "other"}]
)
def test_what_is_no_request_is_told(value: Any):
    with pytest.raises(MalformedError):
        langchain_hitl.from_request(value)
    with pytest.raises(MalformedError):
        langchain_hitl.from_tool_approval(value, allowed=())
    with pytest.raises(MalformedError):
        agent_inbox.from_interrupt(value)
