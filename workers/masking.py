"""What may be shown of a record whose content nobody asked to see: its shape, and ids that are redacted."""

import json
from typing import Any, cast

from infra.redaction import guarded, redacted_value

MAX_DEPTH = 6
MAX_MEMBERS = 40

_redact = guarded()


def masked_value(value: bytes | None) -> Any:
    """A record's value without what it says: for JSON its fields, each with its type and size; else how many bytes it has."""
    if value is None:
        return None
    try:
        return _shape(json.loads(value))
    except (ValueError, RecursionError):
        return f"{len(value)} bytes, not JSON"


def masked_text(value: bytes | None) -> str | None:
    """A key or a header, redacted."""
    return None if value is None else _redact(value.decode(errors="backslashreplace"))


def masked_facts(facts: Any) -> Any:
    """What somebody wrote about a record, redacted."""
    return redacted_value(facts, _redact)


def _shape(value: Any, *, depth: int = 0) -> Any:
    if isinstance(value, dict) and depth < MAX_DEPTH:
        members = list(cast("dict[str, Any]", value).items())[:MAX_MEMBERS]
        return {_redact(name): _shape(one, depth=depth + 1) for name, one in members}
    if isinstance(value, dict | list):
        return f"{'object' if isinstance(value, dict) else 'list'} of {len(cast('list[Any]', value))}"
    if isinstance(value, str):
        return f"text of {len(value)} characters"
    return {bool: "true or false", type(None): "null"}.get(cast("Any", type(value)), "number")
