"""How a person changes a dead letter's value: by a file, by pointers, or in an editor."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio

from topics.errors import ConfigError
from topics.events import ValueEdit
from workers import edits
from workers.cli import output
from workers.edits import EditRefusedError


async def edited_value(
    value: bytes | None, *, file: Path | None, sets: Sequence[str], removes: Sequence[str], editor: str
) -> bytes:
    """The new value, from the one way that was named.

    Raises:
        ConfigError: None was named, or several; the file cannot be read, or the editor failed.
        EditRefusedError: The value cannot be changed like that.
    """
    by_pointer = bool(sets or removes)
    if file is not None and by_pointer:
        raise ConfigError("give the whole value with --value-file, or members with --set and --remove")
    if file is not None:
        return await _read(file)
    if by_pointer:
        return edits.changed(value, sets=[_setting(one) for one in sets], removes=removes)
    if not editor:
        raise ConfigError("say what to change: --set /pointer=value, --value-file, or an editor in EDITOR")
    return await _in_editor(value, editor)


def tell_edit(letter_id: str, edit: ValueEdit, *, dry_run: bool, as_json: bool) -> None:
    """Show what was changed, or would be."""
    if as_json:
        output.print_json({"edited": letter_id, "edit": edit.model_dump(), "dry_run": dry_run})
        return
    for change in edit.changes:
        was = "" if change.op == "add" else f" - {json.dumps(change.was, ensure_ascii=False)}"
        new = "" if change.op == "remove" else f" + {json.dumps(change.value, ensure_ascii=False)}"
        output.print_plain(f"{change.path or 'the whole value'}{was}{new}")
    output.print_plain("nothing was written: add --yes to send it back" if dry_run else f"{letter_id} went back, edited")


def _setting(text: str) -> tuple[str, Any]:
    path, equals, value = text.partition("=")
    if not equals:
        raise EditRefusedError(f"--set wants /pointer=value, not {text!r}", code="bad_pointer")
    try:
        return path, json.loads(value, parse_constant=lambda word: word)
    except ValueError:
        return path, value


async def _in_editor(value: bytes | None, editor: str) -> bytes:
    with TemporaryDirectory(prefix="sluice-edit-") as folder:  # which nobody else may look into
        file = Path(folder) / "value.json"
        file.write_bytes(value or b"")
        try:
            done = await anyio.run_process([*shlex.split(editor), str(file)], stdin=None, stdout=None, stderr=None, check=False)
        except OSError as error:
            raise ConfigError(f"{editor} cannot be started: {error.strerror}") from error
        if done.returncode != 0:
            raise ConfigError(f"{editor} ended with {done.returncode}: nothing was changed")
        return await _read(file)


async def _read(file: Path) -> bytes:
    try:
        return await anyio.Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
