"""Any payload of any type, for property tests."""

import types
from datetime import UTC, datetime, timedelta, timezone
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from hypothesis import strategies as st
from pydantic import BaseModel

from topics.catalogue import SPECS
from topics.events import Payload
from topics.text import clean_text

MODELS: tuple[type[Payload], ...] = tuple(payload for spec in SPECS for payload in spec.payloads)

# What an encoder may be given is clean: surrogates and NUL never come in.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20).map(clean_text)
names = texts.filter(bool)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
instants = st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(2100, 1, 1)).flatmap(  # noqa: DTZ001 the zone is added
    lambda naive: st.integers(-14 * 60, 14 * 60).map(lambda minutes: naive.replace(tzinfo=timezone(timedelta(minutes=minutes))))
)


def payloads(model: type[BaseModel]) -> st.SearchStrategy[Any]:
    """Valid instances of a model."""
    fields = {name: _field(field.annotation) for name, field in model.model_fields.items()}
    return st.fixed_dictionaries(fields).map(model.model_validate)


def _field(annotation: Any) -> st.SearchStrategy[Any]:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _field(arguments[0])
    if origin in {Union, types.UnionType}:
        return st.one_of([_field(one) for one in arguments])
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        return st.lists(_field(arguments[0]), max_size=2).map(tuple)
    if origin is dict:
        return st.dictionaries(texts, json_values, max_size=3)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return payloads(annotation)
    known = {str: names, int: st.integers(0, 2**40), bool: st.booleans(), type(None): st.none(), Any: json_values}
    return known.get(annotation, instants.map(lambda at: at.astimezone(UTC)))
