"""Words of strangers on a terminal: shown as they are, and never obeyed."""

import pytest
import typer

from topics.errors import RejectedError
from workers.cli import output


def test_an_error_that_quotes_a_stranger_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(typer.Exit):
        output.fail(RejectedError("decided otherwise before by [red]kim\x1b[2K\x1b[1A\x9b2K", code="late"))
    said = capsys.readouterr().err
    assert "[red]kim\\x1b[2K\\x1b[1A\\x9b2K" in said
    assert not {"\x1b", "\x9b"} & set(said)


@pytest.mark.parametrize("turn", ["\u061c", "\u200e", "\u200f", "\u2028", "\u2029", "\u202a", "\u202e", "\u2066", "\u2069"])
def test_what_an_approver_reads_stands_in_the_order_in_which_it_is_done(turn: str):
    """P4: the digits after an override are shown backwards."""
    assert output.plain(f"to {turn}123") == f"to \\u{ord(turn):04x}123"


def test_what_people_write_in_their_languages_is_left_alone():
    for text in ("Füße 🙈", "👩\u200d💻", "שלום", "a\u200cb", "a\n\tb"):
        assert output.plain(text) == text
