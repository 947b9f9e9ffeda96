"""When the record that says something was written, so that one which comes back late is told from what came since."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Origin:
    """When a record was written first, by Kafka's timestamp; 0 when unknown. `is_replay`: an operator sent it back."""

    written_at_ms: int = 0
    is_replay: bool = False


UNKNOWN_ORIGIN: Final = Origin()
