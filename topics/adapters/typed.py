"""Arguments that come back from a form as strings get their types again, by the tool's schema and by what was shown."""

import json
from collections.abc import Mapping
from typing import Any, Final, cast

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def typed_again(
    edited: Mapping[str, Any], *, original: Mapping[str, Any], schema: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Undo what a form does to values that are no strings.

    A field that was left as it was shown has its original value. A changed one is read as JSON where its schema, or without one
    its original's type, wants no string. What cannot be read stays a string: whoever checks it against the schema tells.
    """
    properties = cast("Mapping[str, Any]", (schema or {}).get("properties", {}))
    definitions = cast("Mapping[str, Any]", (schema or {}).get("$defs", {}))
    found: dict[str, Any] = {}
    for name, value in edited.items():
        wanted = _wanted(properties[name], definitions) if name in properties else _types_of(original, name)
        found[name] = _typed(value, wanted, original, name) if isinstance(value, str) else value
    return found


def _typed(text: str, wanted: frozenset[str], original: Mapping[str, Any], name: str) -> Any:
    if name in original:
        shown = original[name]
        if shown == text or (not isinstance(shown, str) and _reads_as(text, shown)):
            return shown
    if not wanted or "string" in wanted:
        return text
    value = _read(text)
    return value if any(_is_a(value, kind) for kind in wanted) else text


def _reads_as(text: str, shown: Any) -> bool:
    value = _read(text)
    # As JSON: in Python `[True] == [1]`, and these are two things to approve.
    return value is not _UNREADABLE and json.dumps(value, sort_keys=True) == json.dumps(shown, sort_keys=True)


_UNREADABLE: Final = object()


def _read(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return _UNREADABLE


def _no_number(name: str) -> Any:
    raise ValueError(name)


def _is_a(value: Any, kind: str) -> bool:
    return isinstance(value, _TYPES.get(kind, ())) and (kind == "boolean" or not isinstance(value, bool))


def _types_of(original: Mapping[str, Any], name: str) -> frozenset[str]:
    if name not in original or isinstance(original[name], str) or original[name] is None:
        return frozenset()
    return frozenset(kind for kind in _TYPES if _is_a(original[name], kind))


def _wanted(schema: Any, definitions: Mapping[str, Any]) -> frozenset[str]:
    """The JSON types that a property may have; none when the schema does not say."""
    if not isinstance(schema, dict):
        return frozenset()
    one = cast("dict[str, Any]", schema)
    if "$ref" in one:
        return _wanted(definitions.get(str(one["$ref"]).rpartition("/")[2]), definitions)
    if "type" in one:
        kinds = one["type"]
        return frozenset(cast("list[str]", kinds) if isinstance(kinds, list) else [str(kinds)])
    choices = cast("list[Any]", one.get("anyOf") or one.get("oneOf") or [])
    found = [_wanted(choice, definitions) for choice in choices]
    return frozenset[str]().union(*found) if found and all(found) else frozenset()
