"""Examples as an operator writes them: a JSON object a line, the ticket's text and how it is to be sorted."""

import hashlib
from collections.abc import Sequence
from typing import Final

from pydantic import Field, ValidationError

from flows.examples import searched
from flows.finding import Finding, complaint_of
from flows.intents import BANKING77
from topics.errors import MalformedError
from topics.example import Example
from topics.text import clean_text

MOST_TOLD: Final = 5


class _Line(Finding):
    """`ticket_id`: the ticket that it was made of. Left out, the text itself names the example."""

    ticket_id: str | None = Field(default=None, min_length=1, max_length=200)
    title: str = ""
    body: str


def read_examples(lines: Sequence[str], *, tenant: str, intents: Sequence[str] = BANKING77) -> list[Example]:
    """Read every line that is not blank.

    Args:
        intents: The labels that a model may pick.

    Raises:
        MalformedError: Something is wrong with a line. The first ones are told by number and field, never by their values.
    """
    read: dict[str, Example] = {}
    wrong: list[str] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            example = _example(line, tenant, intents)
        except MalformedError as error:
            wrong.append(f"line {number}: {error}")
            continue
        if example.example_id in read:
            wrong.append(f"line {number}: an earlier line is of the same ticket")
        read[example.example_id] = example
    if wrong:
        more = f"; and {len(wrong) - MOST_TOLD} more" if len(wrong) > MOST_TOLD else ""
        raise MalformedError("; ".join(wrong[:MOST_TOLD]) + more)
    return list(read.values())


def _example(text: str, tenant: str, intents: Sequence[str]) -> Example:
    try:
        line = _Line.model_validate_json(text)
    except ValidationError as error:
        raise MalformedError(complaint_of(error, whole="JSON")) from None  # its own text quotes the line
    if line.intent not in intents:
        raise MalformedError("intent: it is none of the labels (`flows/intents.py`)")
    title, body = clean_text(line.title), clean_text(line.body)
    if not searched(title, body):
        raise MalformedError("body: it says nothing")
    return Example(
        tenant=tenant,
        example_id=clean_text(line.ticket_id or _id_of(title, body)),
        title=title,
        body=body,
        intent=line.intent,
        priority=line.priority,
        needs_person=line.needs_person,
        summary=clean_text(line.summary),
    )


def _id_of(title: str, body: str) -> str:
    """The same text gives the same id, so that adding it again changes nothing."""
    return hashlib.sha256(f"{title}\n{body}".encode()).hexdigest()[:16]
