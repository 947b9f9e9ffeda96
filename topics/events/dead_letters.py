"""What operators did with dead letters."""

from typing import Literal

from topics.events.payload import Instant, Payload


class DeadLetterResolved(Payload):
    """What an operator did with a dead letter."""

    TYPE = "dead_letter.resolved"

    dead_letter_id: str
    action: Literal["replayed", "discarded"]
    operator: str
    reason: str = ""
    replay_count: int = 0
    resolved_at: Instant

    def identity(self) -> str:
        return f"{self.dead_letter_id}:{self.action}:{self.replay_count}"
