"""An example of triage, as it is given, kept and shown."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Example:
    """A ticket's text, and how its tenant wants such tickets sorted.

    `example_id` is the id of the ticket that it was made of, when it was made of one: a ticket is never its own example.
    """

    tenant: str
    example_id: str
    title: str
    body: str
    intent: str
    priority: Literal["low", "normal", "high", "urgent"]
    needs_person: bool
    summary: str
