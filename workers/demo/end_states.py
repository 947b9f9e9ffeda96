"""Compare the back office's records with end states that the data set gives."""

from typing import Any

from flows.evaluation.equality import alike
from infra.local.data.datasets import RetailTask


def same_changes(found: list[dict[str, Any]], task: RetailTask) -> bool:
    """Whether the changed records are exactly those of the task, money to the cent."""
    expected = {(change.table, change.key): change.after for change in task.expected_changes}
    actual = {(change["table"], change["key"]): change["after"] for change in found}
    return alike(expected, actual)
