"""How commands speak: people's text on a terminal, one JSON value with `--json`, one sentence for an error."""

import json
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Final, NoReturn, cast

import anyio
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from topics.errors import ConfigError, OutageError, SluiceError

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

# Controls, and what turns the direction of reading or begins a line: an approver would read another order than the one that runs.
_OBEYED: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")

PIPED_COLUMNS: Final = 240

console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)


def run(task: Callable[[], Awaitable[None]], *, as_json: bool = False) -> None:
    """Run a command to its end; a known error becomes one sentence and an exit code: 2 for settings and servers, else 1."""
    try:
        anyio.run(task)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except (SluiceError, BaseExceptionGroup) as error:
        known = _known(error)
        if known is None:
            raise
        fail(known, as_json=as_json)


def fail(error: SluiceError, *, as_json: bool = False) -> NoReturn:
    """Say what is wrong and exit."""
    if as_json:
        print_json({"error": {"code": error.reason_code, "message": str(error)}})
    else:
        errors.print(f"[red]sluice:[/red] {escape(plain(str(error)))}", soft_wrap=True)
    raise typer.Exit(_exit_code(error))


def fail_with(facts: Any, error: SluiceError) -> NoReturn:
    """Print what a command found as its one JSON value, and exit as for `error`."""
    print_json(facts)
    raise typer.Exit(_exit_code(error))


def _exit_code(error: SluiceError) -> int:
    return 2 if isinstance(error, ConfigError | OutageError) else 1


def _known(error: BaseException) -> SluiceError | None:
    """The one known error in it; of several, the others happened because of the first. None when there is a bug among them."""
    if isinstance(error, SluiceError):
        return error
    if not isinstance(error, BaseExceptionGroup):
        return None  # a bug: its traceback is the answer
    group = cast("BaseExceptionGroup[BaseException]", error)
    inside = [_known(one) for one in group.exceptions]
    return inside[0] if all(inside) else None


def print_json(value: Any) -> None:
    """One value on one line."""
    sys.stdout.write(json.dumps(value, default=str, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def plain(text: str) -> str:
    """Text of strangers for a terminal: characters that would be obeyed are shown as their code."""
    return _OBEYED.sub(_code, text)


def _code(found: re.Match[str]) -> str:
    number = ord(found.group())
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


def print_plain(text: str, *, style: str | None = None) -> None:
    """One line of text that may hold a stranger's words: nothing in it is markup."""
    console.print(Text(plain(text), style=style or ""), soft_wrap=True)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None) -> None:
    """A table that fits its content. Only `Text` has a style; in other cells nothing is markup."""
    if not console.is_terminal:
        console.width = max(console.width, PIPED_COLUMNS)  # a row that is folded cannot be searched
    table = Table(title=title, title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")  # an id that is cut off cannot be copied
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(plain(str(cell))) for cell in row))
    console.print(table)
