"""A clock that moves when it is told to."""

from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)


class FakeClock:
    def __init__(self, *, step_s: float = 0.0) -> None:
        self.step_s = step_s
        self._passed_s = 0.0

    def advance(self, seconds: float) -> None:
        self._passed_s += seconds

    def now(self) -> datetime:
        return START + timedelta(seconds=self._passed_s)

    def monotonic_s(self) -> float:
        """Reading may cost time, so that a stream of chunks spans some."""
        self._passed_s += self.step_s
        return self._passed_s
