"""A dead letter's value in a person's hands: by pointers, from a file, in an editor; and what they are shown of it."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from topics.errors import SluiceError
from topics.events import ValueEdit
from topics.records import RawRecord
from workers.cli import dead
from workers.cli.editing import edited_value
from workers.dead_letters import DeadLetter, ReplayRefusedError
from workers.edits import edit_of

VALUE = b'{"text":"hi","n":1}'
LETTER = DeadLetter(
    id="x", reason="bad_payload", tenant="acme", topic="queries", partition="0", offset="1", message="", exception="", group="g",
    first_failed_at_ms="1", last_failed_at_ms="2", replays=0, state="open", record=RawRecord("dead-letters", 0, 0, b"k", VALUE),
)  # fmt: skip


async def made(file: Path | None = None, sets: tuple[str, ...] = (), removes: tuple[str, ...] = (), editor: str = "") -> bytes:
    return await edited_value(VALUE, file=file, sets=sets, removes=removes, editor=editor)


async def test_members_are_set_to_json_or_else_to_the_text():
    assert json.loads(await made(sets=("/text=hello = there", "/n=2", '/o={"a": [null]}', "/s=NaN"))) == {
        "text": "hello = there", "n": 2, "o": {"a": [None]}, "s": "NaN",
    }  # fmt: skip
    assert await made(removes=("/n",)) == b'{"text": "hi"}'


async def test_a_file_holds_the_whole_value_to_the_byte(tmp_path: Path):
    (tmp_path / "v").write_bytes(b' {"text" : "ho"}\n')
    assert await made(tmp_path / "v") == b' {"text" : "ho"}\n'


async def test_an_editor_gets_the_value_and_its_words_are_the_new_one(tmp_path: Path):
    script = tmp_path / "my editor"
    script.write_text('#!/bin/sh\n[ "$1" = --wait ] || exit 9\nsed -i s/hi/ho/ "$2"\n')
    script.chmod(0o755)
    assert await made(editor=f"'{script}' --wait") == b'{"text":"ho","n":1}'


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "say what to change"),
        ({"editor": "false"}, "ended with 1"),
        ({"editor": "/nowhere/at/all"}, "cannot be started"),
        ({"file": Path("/nowhere/at/all")}, "cannot be read"),
        ({"file": Path("x"), "sets": ("/a=1",)}, "or members"),
        ({"sets": ("/a",)}, "wants /pointer=value"),
    ],
)
async def test_what_cannot_be_done_is_said_in_a_sentence(arguments: dict[str, Any], words: str):
    with pytest.raises(SluiceError, match=words):
        await made(**arguments)


class Operated:
    """Operations that write nothing and say what they were asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[bytes, str, bool]] = []

    async def load(self) -> list[DeadLetter]:
        return [LETTER]

    async def edit(self, letter: DeadLetter, value: bytes, *, reason: str, dry_run: bool = False) -> ValueEdit:
        self.asked.append((value, reason, dry_run))
        if not reason:
            raise ReplayRefusedError("an edit needs a reason", code="reason_missing")
        return edit_of(letter.record.value, value)


@pytest.fixture
def operated(monkeypatch: pytest.MonkeyPatch) -> Operated:
    found = Operated()
    monkeypatch.setattr(dead, "_operations", lambda: found)
    return found


def test_without_yes_it_says_what_would_change_and_writes_nothing(operated: Operated):
    told = CliRunner().invoke(dead.app, ["edit", "x", "--because", "typing", "--set", "/text=ho", "--remove", "/n"])
    assert told.exit_code == 0, told.output
    assert told.stdout.splitlines() == ['/text - "hi" + "ho"', "/n - 1", "nothing was written: add --yes to send it back"]
    assert operated.asked == [(b'{"text": "ho"}', "typing", True)]


def test_with_yes_it_goes_back_and_json_tells_the_difference(operated: Operated):
    told = CliRunner().invoke(dead.app, ["edit", "x", "--because", "typing", "--set", "/text=ho", "--yes", "--json"])
    assert told.exit_code == 0, told.output
    said = json.loads(told.stdout)
    assert (said["edited"], said["dry_run"]) == ("x", False)
    assert said["edit"]["changes"] == [{"op": "replace", "path": "/text", "value": "ho", "was": "hi"}]
    assert [dry_run for _, _, dry_run in operated.asked] == [False]


@pytest.mark.parametrize(
    ("arguments", "code"), [(["y", "--set", "/a=1", "--because", "b"], "unknown"), (["x", "--set", "/a=1"], "reason_missing")]
)
@pytest.mark.usefixtures("operated")
def test_an_unknown_letter_and_a_missing_reason_are_told_by_their_codes(arguments: list[str], code: str):
    told = CliRunner().invoke(dead.app, ["edit", *arguments, "--json"])
    assert (told.exit_code, json.loads(told.stdout)["error"]["code"]) == (1, code)
