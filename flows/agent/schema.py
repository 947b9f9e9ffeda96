"""The shape of a graph and its state as text: threads that one build paused can be read by another of the same shape. Pure.

Node names are in it, since a paused thread names the node that waits; and every key of the state with its type and its reducer,
all the way down, since LangGraph would drop a key that is gone and hand over one that was retyped as it was stored.
"""

import typing
from collections.abc import Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints, is_typeddict

from langchain_core.messages import AnyMessage


def describe_graph(nodes: Sequence[str], state: type) -> str:
    """The names of the nodes and the shape of the state."""
    return f"{','.join(sorted(nodes))};{describe(state)}"


def describe(hint: Any) -> str:
    """One type: the same text for the same shape, whatever order or alias it is spelled in."""
    if hint == AnyMessage:
        return "message"  # its members are LangChain's business, and change with its version
    if is_typeddict(hint):
        fields = get_type_hints(hint, include_extras=True)
        return "{" + ",".join(f"{name}:{describe(fields[name])}" for name in sorted(fields)) + "}"
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        marks = [mark.__qualname__ for mark in arguments[1:] if callable(mark) and hasattr(mark, "__qualname__")]
        return f"{describe(arguments[0])}@{','.join(marks)}" if marks else describe(arguments[0])
    if origin in {Union, UnionType}:
        return "|".join(sorted(describe(one) for one in arguments))
    if origin is typing.Literal:
        return f"={','.join(sorted(map(repr, arguments)))}"
    if origin is not None:
        return f"{origin.__name__}[{','.join(describe(one) for one in arguments)}]"
    return "none" if hint in {None, NoneType} else getattr(hint, "__name__", repr(hint))
