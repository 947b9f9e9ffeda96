"""Conditions of a rule on a call's arguments, in three values: true, false, and unknown. Pure.

Arguments come from a model that reads what customers write, so what a condition cannot tell must not help a call through: the
caller takes unknown as a reason to ask or to deny, and never as one to allow.
"""

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, model_validator

Scalar = bool | int | float | str
Comparison = Literal["=", "!=", "<", "<=", ">", ">=", "in", "like"]
_ORDERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": lambda found, value: found < value,
    "<=": lambda found, value: found <= value,
    ">": lambda found, value: found > value,
    ">=": lambda found, value: found >= value,
}


class Condition(BaseModel):
    """One comparison of one argument.

    `path` goes down by dots, list places by number. `count` compares how many a list has. `in` takes a list of values, `like` a
    pattern with `*` and `?`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    path: str = Field(min_length=1)
    comparison: Comparison = Field(alias="is")
    value: Scalar | tuple[Scalar, ...]
    count: bool = False

    @property
    def argument(self) -> str:
        """The argument that it starts from."""
        return self.path.split(".")[0]

    @model_validator(mode="after")
    def _fits(self) -> "Condition":
        if (self.comparison == "in") != isinstance(self.value, tuple):
            raise ValueError('a list of values goes with "in", and only with it')
        if self.comparison == "like" and not isinstance(self.value, str):
            raise ValueError('"like" takes a text')
        if (self.comparison in _ORDERS or self.count) and not _is_number(self.value) and self.comparison != "in":
            raise ValueError(f'"{self.comparison}" takes a number here')
        return self

    def holds(self, arguments: Mapping[str, Any]) -> bool | None:
        """Whether it holds; None when that cannot be told. A tool that has no such argument at all is not meant: false."""
        if self.argument not in arguments:
            return False
        found = value_at(arguments, self.path)
        if self.count:
            found = len(cast("list[Any]", found)) if isinstance(found, list) else None
        if found is None:
            return None
        return _compare(self.comparison, found, self.value)


def value_at(arguments: Mapping[str, Any], path: str) -> Any:
    """What stands at a dotted path, or None."""
    found: Any = arguments
    for step in path.split("."):
        if isinstance(found, Mapping):
            found = cast("Mapping[str, Any]", found).get(step)
        elif isinstance(found, list):
            place, items = int(step) if step.isdecimal() else -1, cast("list[Any]", found)
            found = items[place] if 0 <= place < len(items) else None
        else:
            return None
    return found


def _compare(comparison: Comparison, found: Any, value: Any) -> bool | None:
    match comparison:
        case "=":
            return _same(found, value)
        case "!=":
            same = _same(found, value)
            return None if same is None else not same
        case "in":
            answers = [_same(found, one) for one in value]
            return True if True in answers else False if False in answers or not answers else None
        case "like":
            return fnmatchcase(found, value) if isinstance(found, str) else None
        case _:
            return _ORDERS[comparison](found, value) if _is_number(found) else None


def _same(found: Any, value: Any) -> bool | None:
    """Whether two values are equal; None when they are of different kinds, such as the text "49" and the number 49."""
    return found == value if _kind(found) == _kind(value) else None


def _kind(value: Any) -> str:
    # A bool is an int to Python, and 1 equals 1.0 to everybody.
    return "number" if _is_number(value) else type(value).__name__


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
