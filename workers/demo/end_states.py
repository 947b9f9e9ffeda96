"""Compare the back office's records with end states that the data set gives."""

from typing import Any, Final, cast

from infra.local.data.datasets import RetailTask

CENT: Final = 0.01


def same_changes(found: list[dict[str, Any]], task: RetailTask) -> bool:
    """Whether the changed records are exactly those of the task, money to the cent."""
    expected = {(change.table, change.key): change.after for change in task.expected_changes}
    actual = {(change["table"], change["key"]): change["after"] for change in found}
    return alike(expected, actual)


def alike(one: Any, other: Any) -> bool:
    """Equal JSON, where numbers may differ by less than a cent: the data set mixes whole and broken numbers."""
    if isinstance(one, dict) and isinstance(other, dict):
        left, right = cast("dict[Any, Any]", one), cast("dict[Any, Any]", other)
        return left.keys() == right.keys() and all(alike(value, right[key]) for key, value in left.items())
    if isinstance(one, list) and isinstance(other, list):
        items, others = cast("list[Any]", one), cast("list[Any]", other)
        return len(items) == len(others) and all(map(alike, items, others))
    if isinstance(one, int | float) and isinstance(other, int | float) and not isinstance(one, bool):
        return abs(one - other) < CENT
    return one == other
