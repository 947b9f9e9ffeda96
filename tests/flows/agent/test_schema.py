"""What the version of a graph notices: whatever a paused thread of another build could trip over."""

from typing import Annotated, Any, NotRequired, TypedDict

import pytest

from flows.agent.schema import describe, describe_graph
from flows.agent.state import AgentState


class Inner(TypedDict):
    cents: int


class State(TypedDict):
    inner: dict[str, Inner]
    note: str | None


class Retyped(TypedDict):
    inner: dict[str, Inner]
    note: int | None


class OtherInner(TypedDict):
    cents: str


class RetypedWithin(TypedDict):
    inner: dict[str, OtherInner]
    note: str | None


class Longer(State):
    priority: int


class OptionallyLonger(State):
    priority: NotRequired[int]


class Shorter(TypedDict):
    inner: dict[str, Inner]


class Reordered(TypedDict):
    note: None | str  # noqa: RUF036 the point
    inner: dict[str, Inner]


def add(old: str | None, new: str | None) -> str | None:
    return (old or "") + (new or "")


class Reduced(TypedDict):
    inner: dict[str, Inner]
    note: Annotated[str | None, add]


@pytest.mark.parametrize("other", [Retyped, RetypedWithin, Longer, OptionallyLonger, Shorter, Reduced])
def test_a_key_that_came_went_or_changed_is_another_shape(other: Any):
    assert describe(other) != describe(State)


def test_order_and_spelling_are_no_other_shape():
    assert describe(Reordered) == describe(State)


def test_a_renamed_node_is_another_shape():
    assert describe_graph(["model", "gate"], State) == describe_graph(["gate", "model"], State)
    assert describe_graph(["model", "gate"], State) != describe_graph(["model", "gate_v2"], State)


def test_the_shape_of_our_state_says_nothing_of_where_it_was_built():
    text = describe(AgentState)
    assert "object at 0x" not in text
    assert "message" in text
