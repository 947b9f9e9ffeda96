"""Tickets, and what triage found."""

from typing import Literal

from pydantic import Field

from topics.events.payload import Instant, Payload


class TicketOpened(Payload):
    """A customer opened a ticket."""

    TYPE = "ticket.opened"

    ticket_id: str = Field(min_length=1, max_length=200)
    title: str = ""
    body: str
    requester: str | None = None
    opened_at: Instant | None = None


class TicketCommented(Payload):
    """Somebody wrote on a ticket."""

    TYPE = "ticket.commented"

    ticket_id: str = Field(min_length=1, max_length=200)
    body: str
    author: str | None = None


class TicketClosed(Payload):
    """A ticket was closed upstream."""

    TYPE = "ticket.closed"

    ticket_id: str = Field(min_length=1, max_length=200)
    reason: str | None = None


class TicketErased(Payload):
    """What a tombstone on `tickets` means: forget everything about the ticket."""

    TYPE = "ticket.erased"

    ticket_id: str = Field(min_length=1, max_length=200)


class TicketTriaged(Payload):
    """What triage found.

    `prompt_version` tells one wording of the prompt, its labels included, from another; where the prompt showed examples of the
    tenant, a plus sign and the version of its examples follow.
    """

    TYPE = "ticket.triaged"

    ticket_id: str
    intent: str
    priority: Literal["low", "normal", "high", "urgent"]
    needs_person: bool
    summary: str
    model: str | None = None
    prompt_version: str | None = None
