"""The smallest valid instance of a JSON schema."""

from collections.abc import Mapping
from typing import Any, Final, cast

Json = dict[str, Any]
MAX_DEPTH: Final = 20


def resolve(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Json:
    """Follow references and take the first alternative that is not null."""
    found = dict(schema)
    for _ in range(MAX_DEPTH):
        if "$ref" in found:
            found = _at(root, found["$ref"])
            continue
        choices = cast("list[Json] | None", found.get("anyOf") or found.get("oneOf") or found.get("allOf"))
        if not choices:
            break
        found = next((choice for choice in choices if choice.get("type") != "null"), choices[0])
    return found


def instance(schema: Mapping[str, Any], *, text: str, root: Mapping[str, Any] | None = None, depth: int = 0) -> Any:
    """Build a value that the schema accepts, strings taken from `text`.

    Optional fields are filled as well, except below 20 levels: there a recursive schema is cut short.
    """
    root = schema if root is None else root
    found = resolve(schema, root)
    if "const" in found:
        return found["const"]
    if "enum" in found:
        return _named_in(text, found["enum"])
    kind = _type_of(found)
    if kind == "object":
        return _object(found, text=text, root=root, depth=depth)
    if kind == "array":
        count = max(int(found.get("minItems", 0)), 1 if "items" in found and depth < MAX_DEPTH else 0)
        return [instance(found.get("items", {}), text=text, root=root, depth=depth + 1) for _ in range(count)]
    return _scalar(kind, found, text)


def _object(schema: Json, *, text: str, root: Mapping[str, Any], depth: int) -> Json:
    properties = cast("dict[str, Json]", schema.get("properties", {}))
    required = cast("list[str]", schema.get("required", []))
    wanted = properties if depth < MAX_DEPTH else {name: properties[name] for name in required if name in properties}
    return {name: instance(part, text=text, root=root, depth=depth + 1) for name, part in wanted.items()}


def _scalar(kind: str, schema: Json, text: str) -> Any:
    if kind == "null":
        return None
    if kind == "boolean":
        return False
    if kind in {"integer", "number"}:
        return _number(schema, whole=kind == "integer")
    filled = text.strip() or "none"
    return filled[: int(schema.get("maxLength", 120))].ljust(int(schema.get("minLength", 0)), ".")


def _number(schema: Json, *, whole: bool) -> float:
    step = 1 if whole else 0.5
    low = schema.get("minimum", schema["exclusiveMinimum"] + step if "exclusiveMinimum" in schema else None)
    high = schema.get("maximum", schema["exclusiveMaximum"] - step if "exclusiveMaximum" in schema else None)
    value = low if low is not None else min(0, high) if high is not None else 0
    return int(value) if whole else float(value)


def _named_in(text: str, values: list[Any]) -> Any:
    """The value that the text names, else the first."""
    lowered = text.lower()
    return next((value for value in values if isinstance(value, str) and value.lower() in lowered), values[0])


def _type_of(schema: Json) -> str:
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if isinstance(kind, list):
        kinds = cast("list[str]", kind)
        return next((name for name in kinds if name != "null"), "null")
    return str(kind)


def _at(root: Mapping[str, Any], reference: str) -> Json:
    found: Any = root
    for part in reference.removeprefix("#").split("/"):
        found = found[part] if part else found
    return cast("Json", found)
