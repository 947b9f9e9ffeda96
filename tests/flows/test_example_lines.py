"""Examples as they are written: every line is right, or none is taken and each fault is named."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.example_lines import MOST_TOLD, read_examples
from flows.finding import SUMMARY_CHARS
from flows.intents import BANKING77
from topics.errors import MalformedError
from topics.example import Example

RIGHT = {"body": "My card is gone", "intent": "lost_or_stolen_card", "priority": "high", "needs_person": True, "summary": "Lost."}


def line(**changed: Any) -> str:
    return json.dumps({name: value for name, value in (RIGHT | changed).items() if value is not ...})


def read(*lines: str) -> list[Example]:
    return read_examples(lines, tenant="acme")


def test_a_line_becomes_an_example_of_the_tenant() -> None:
    assert read(line(ticket_id="T-1", title="Help"), "", "  ") == [
        Example("acme", "T-1", "Help", "My card is gone", "lost_or_stolen_card", "high", needs_person=True, summary="Lost.")
    ]
    assert read() == []


def test_without_a_ticket_s_id_the_text_itself_is_the_name() -> None:
    (first,), (again,), (other,) = read(line()), read(line(intent="card_arrival")), read(line(title="x"))
    assert first.example_id == again.example_id != other.example_id


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("{", "JSON"),
        ("[]", "object"),
        ("5", "object"),
        (line(body=...), "body"),
        (line(body=" \n"), "body"),
        (line(body=5), "body"),
        (line(ticket_id=""), "ticket_id"),
        (line(ticket_id="x" * 201), "ticket_id"),
        (line(intent="jane_doe"), "intent"),
        (line(intent=...), "intent"),
        (line(priority="critical"), "priority"),
        (line(needs_person="yes"), "needs_person"),
        (line(summary="x" * (SUMMARY_CHARS + 1)), "summary"),
        (line(tenant="globex"), "tenant"),
    ],
)
def test_a_wrong_line_is_named_by_number_and_field_and_never_quoted(wrong: str, words: str) -> None:
    with pytest.raises(MalformedError) as caught:
        read(line(), "", wrong)
    assert str(caught.value).startswith("line 3: ")
    assert words in str(caught.value)
    assert not any(quoted in str(caught.value) for quoted in ("jane", "globex", "critical", "yes"))


def test_two_lines_of_one_ticket_are_a_mistake() -> None:
    with pytest.raises(MalformedError, match=r"^line 2: .*same ticket$"):
        read(line(ticket_id="T-1"), line(ticket_id="T-1", body="Another"))


@given(st.lists(st.booleans(), max_size=12))
def test_every_wrong_line_is_counted_and_the_first_are_told(right: list[bool]) -> None:
    lines = [line(ticket_id=f"T-{number}") if good else "{}" for number, good in enumerate(right)]
    wrong = [number for number, good in enumerate(right, start=1) if not good]
    if not wrong:
        assert [one.example_id for one in read(*lines)] == [f"T-{number}" for number in range(len(right))]
        return
    with pytest.raises(MalformedError) as caught:
        read(*lines)
    told = str(caught.value)
    assert [number for number in wrong if f"line {number}: " in told] == wrong[:MOST_TOLD]
    assert (f"and {len(wrong) - MOST_TOLD} more" in told) == (len(wrong) > MOST_TOLD)


@given(st.sampled_from(BANKING77), st.text(st.characters(exclude_categories=["Cs"]), max_size=50), st.booleans())
def test_whatever_is_right_is_read_as_it_was_written(intent: str, title: str, needs_person: bool) -> None:
    (found,) = read(line(intent=intent, title=title, needs_person=needs_person))
    assert (found.intent, found.title, found.needs_person) == (intent, title.replace("\x00", ""), needs_person)
