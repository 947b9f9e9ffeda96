"""What every payload has in common."""

from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict

from topics.attributes import instant


def _instant(value: Any) -> Any:
    """Read instants by the one rule; guess nothing from numbers."""
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else instant(value)


Instant = Annotated[AwareDatetime, BeforeValidator(_instant)]


class Payload(BaseModel):
    """Base of every payload."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    TYPE: ClassVar[str]
    VERSION: ClassVar[int] = 1
    # A piece of a stream: whoever yields it goes on before the broker has it, since a later event says it all again.
    STREAMED: ClassVar[bool] = False

    def identity(self) -> str | None:
        """What makes two publications the same fact, or None when only their cause does."""
        return None
