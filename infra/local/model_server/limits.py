"""A provider's rate limits, for requests: a bucket that fills evenly, and a window that slides. A request must fit both."""

from collections import deque
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, Field


class Limit(BaseModel):
    """None means no limit. Of the bucket's requests `burst` may come at once after a pause; a window may be used up at once."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    requests_per_minute: float | None = Field(default=None, gt=0)
    burst: int = Field(default=1, ge=1)
    requests_per_window: int | None = Field(default=None, ge=1)
    window_s: float = Field(default=60.0, gt=0)


@dataclass(slots=True)
class Limiter:
    """Admits requests within a limit."""

    limit: Limit = field(default_factory=Limit)
    _ready_s: float = 0.0
    _admitted_s: deque[float] = field(default_factory=deque[float])

    def wait_s(self, now_s: float) -> float:
        """Zero when the request at `now_s` is admitted and counted; else how long until one would be, and nothing is counted."""
        gap_s = 60 / self.limit.requests_per_minute if self.limit.requests_per_minute else 0.0
        ready_s = max(self._ready_s, now_s - (self.limit.burst - 1) * gap_s)
        wait_s = max(ready_s - now_s, self._window_wait_s(now_s))
        if wait_s > 1e-9:
            return wait_s
        self._ready_s = ready_s + gap_s
        if self.limit.requests_per_window is not None:
            self._admitted_s.append(now_s)
        return 0.0

    def _window_wait_s(self, now_s: float) -> float:
        while self._admitted_s and self._admitted_s[0] <= now_s - self.limit.window_s:
            self._admitted_s.popleft()
        if self.limit.requests_per_window is None or len(self._admitted_s) < self.limit.requests_per_window:
            return 0.0
        return self._admitted_s[0] + self.limit.window_s - now_s
