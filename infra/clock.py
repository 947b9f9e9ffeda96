"""The real clock; the one place that reads it."""

import time
from datetime import UTC, datetime


class SystemClock:
    """Wall and monotonic time of this machine."""

    def now(self) -> datetime:
        """The current instant, aware, UTC."""
        return datetime.now(UTC)

    def monotonic_s(self) -> float:
        """Seconds that never go back, for measuring spans."""
        return time.monotonic()
