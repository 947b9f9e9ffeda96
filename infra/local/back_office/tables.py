"""What operations see: one tenant's rows over a shared seed, and the changes a call is about to make."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

Row = dict[str, Any]
Seed = Mapping[str, Mapping[str, Row]]
RowKey = tuple[str, str]


class RefusedError(Exception):
    """A business rule says no. The text is what the caller is told; the call's changes are dropped."""

    def __str__(self) -> str:
        """The text as recorded conversations spell it."""
        return f"Error: {super().__str__()}"


class BadArgumentsError(ValueError):
    """The arguments do not fit the operation. The message names them and quotes no value."""


class Tables:
    """The seed, under what the tenant changed, under what this call is about to change.

    Rows are shared: an operation builds a new row and puts it, it never writes into one it found.
    """

    def __init__(self, seed: Seed, changed: Mapping[RowKey, Row]) -> None:
        self._seed: Final = seed
        self._changed: Final = changed
        self.pending: Final[dict[RowKey, Row]] = {}

    def find(self, table: str, key: str) -> Row | None:
        """One row as this call sees it."""
        at = (table, key)
        for layer in (self.pending, self._changed):
            if at in layer:
                return layer[at]
        return self._seed[table].get(key)

    def rows(self, table: str) -> Iterator[tuple[str, Row]]:
        """Every row of a table, in the seed's order."""
        for key, row in self._seed[table].items():
            yield key, self.find(table, key) or row

    def put(self, table: str, key: str, row: Row) -> None:
        """Replace a row, for this call; the store makes it last."""
        self.pending[table, key] = row


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


@dataclass(frozen=True, slots=True)
class Operation:
    """A named operation. One that does not mutate keeps no key and no journal."""

    name: str
    mutates: bool
    arguments: type[BaseModel]
    function: Callable[..., str]

    def check(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments, if they fit.

        Raises:
            BadArgumentsError: A name is missing or unknown, or a value has another type.
        """
        try:
            return self.arguments.model_validate(arguments).model_dump()
        except ValidationError as error:
            wrong = (f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors(include_input=False))
            raise BadArgumentsError("; ".join(wrong)) from error

    def run(self, tables: Tables, arguments: Mapping[str, Any]) -> str:
        """Run on checked arguments.

        Raises:
            RefusedError: A rule says no; `tables.pending` must be dropped.
        """
        return self.function(tables, **arguments)


def operation(function: Callable[..., str], *, mutates: bool) -> Operation:
    """Make an operation of `def name(tables: Tables, *, typed, arguments) -> str`."""
    hints = get_type_hints(function)
    fields: dict[str, Any] = {name: (hints[name], ...) for name in list(inspect.signature(function).parameters)[1:]}
    model = create_model(function.__name__, __base__=_Arguments, **fields)
    return Operation(name=function.__name__, mutates=mutates, arguments=model, function=function)
