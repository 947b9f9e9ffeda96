"""What people said of answers, as it is kept beside a thread."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from topics.events import FeedbackGiven
from topics.text import clean_text, shorten

MAX_NOTE_CHARS: Final = 4_000


@dataclass(frozen=True, slots=True)
class Feedback:
    """One `feedback.given`, by its event's id. `at` is the sender's word, and None where they did not say when."""

    feedback_id: str
    query_id: str | None
    thumb: Literal["up", "down"] | None
    note: str | None
    at: datetime | None


def feedback_of(given: FeedbackGiven, *, event_id: str, at: datetime | None) -> Feedback:
    """What is kept of an event: all of it, a very long note cut."""
    note = None if given.note is None else shorten(clean_text(given.note), MAX_NOTE_CHARS)
    return Feedback(event_id, given.query_id, given.thumb, note, at)
