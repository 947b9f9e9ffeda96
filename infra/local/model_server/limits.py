"""A provider's rate limit: a bucket that fills evenly, for requests."""

from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, Field


class Limit(BaseModel):
    """Requests a minute; None means no limit. `burst` may come at once after a pause."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    requests_per_minute: float | None = Field(default=None, gt=0)
    burst: int = Field(default=1, ge=1)


@dataclass(slots=True)
class Limiter:
    """Admits requests within a limit."""

    limit: Limit = field(default_factory=Limit)
    _ready_s: float = 0.0

    def wait_s(self, now_s: float) -> float:
        """Zero when the request at `now_s` is admitted and counted; else how long until one would be, and nothing is counted."""
        if self.limit.requests_per_minute is None:
            return 0.0
        gap_s = 60 / self.limit.requests_per_minute
        ready_s = max(self._ready_s, now_s - (self.limit.burst - 1) * gap_s)
        if ready_s > now_s + 1e-9:
            return ready_s - now_s
        self._ready_s = ready_s + gap_s
        return 0.0
