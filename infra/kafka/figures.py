"""What a group member counts, as plain numbers: the path of a record pays an addition, and whoever asks pays the rest."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from infra.clock import SystemClock
from infra.kafka.assignment import Work

BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


@dataclass(slots=True)
class Durations:
    """How long things took: `counts[i]` of them at most `BUCKETS_S[i]` and longer than the bucket before; the last, longer."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    sum_s: float = 0.0

    def add(self, seconds: float) -> None:
        """Note one."""
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.sum_s += seconds


@dataclass(slots=True)
class Counters:
    """What happened since the start. `dead_by` is by topic and reason code, `handler_s` by topic."""

    polls: int = 0
    admitted: int = 0
    handled: int = 0
    skipped: int = 0
    retried: int = 0
    dead: int = 0
    handed_back: int = 0
    settled: int = 0
    commits: int = 0
    lease_losses: int = 0
    outages: int = 0
    rebalances: int = 0
    rebalance_s: float = 0.0
    peak_running: int = 0
    peak_buffered: int = 0
    dead_by: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    handler_s: dict[str, Durations] = field(default_factory=dict[str, Durations])


class InFlight:
    """Work between its start and its end, the oldest first."""

    def __init__(self, clock: SystemClock) -> None:
        self._clock = clock
        self._started: dict[Work, tuple[int, float]] = {}
        self.starts = 0

    def update(self, works: Iterable[Work]) -> None:
        """Work starts."""
        now_s = self._clock.monotonic_s()
        for work in works:
            self.starts += 1
            self._started[work] = self.starts, now_s

    def discard(self, work: Work) -> None:
        """Work ended, or waits again."""
        self._started.pop(work, None)

    def age_s(self, work: Work) -> float:
        """Seconds since a start; 0 for what is not in flight."""
        started = self._started.get(work)
        return 0.0 if started is None else self._clock.monotonic_s() - started[1]

    def oldest(self) -> int:
        """Which start is the oldest that has not ended, counted from 1; 0 when nothing is in flight."""
        return next(iter(self._started.values()), (0, 0.0))[0]

    def __iter__(self) -> Iterator[Work]:
        return iter(self._started)

    def __len__(self) -> int:
        return len(self._started)
