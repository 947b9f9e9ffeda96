"""What operators did with dead letters."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from topics.events.payload import Instant, Payload


class ValueChange(BaseModel):
    """One difference between two JSON values, at a JSON pointer (RFC 6901). `value` is None where something was removed."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    op: Literal["add", "remove", "replace"]
    path: str
    value: Any = None
    was: Any = None


class ValueEdit(BaseModel):
    """How an operator changed a dead letter's value before it went back. Digests are of the bytes; empty for a tombstone."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    changes: tuple[ValueChange, ...]
    before_sha256: str
    after_sha256: str


class DeadLetterResolved(Payload):
    """What an operator did with a dead letter. `edit` is there when another value went back than the one that had died."""

    TYPE = "dead_letter.resolved"

    dead_letter_id: str
    action: Literal["replayed", "discarded"]
    operator: str
    reason: str = ""
    replay_count: int = 0
    edit: ValueEdit | None = None
    resolved_at: Instant

    def identity(self) -> str:
        return f"{self.dead_letter_id}:{self.action}:{self.replay_count}"
