"""When two JSON values are the same thing: by content, and numbers to the cent."""

from typing import Any, Final, cast

CENT: Final = 0.01


def alike(one: Any, other: Any) -> bool:
    """Equal JSON, where numbers may differ by less than a cent: data sets mix whole and broken numbers."""
    if isinstance(one, dict) and isinstance(other, dict):
        left, right = cast("dict[Any, Any]", one), cast("dict[Any, Any]", other)
        return left.keys() == right.keys() and all(alike(value, right[key]) for key, value in left.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        items, others = cast("list[Any]", one), cast("list[Any]", other)
        return len(items) == len(others) and all(map(alike, items, others))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return abs(one - other) < CENT
    return bool(one == other)
