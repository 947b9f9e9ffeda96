"""A circuit breaker: closed, open after failures, and closed again by a trial that went well. Pure.

It counts calls, not records: who is turned away goes to another provider or waits, and is no worse for it.
Source: docs/decisions/0018-providers.md; Nygard, Release It!, 2nd edition, chapter 5.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final, Literal

WINDOW: Final = 20

State = Literal["closed", "open", "half_open"]


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """When it opens, and for how long.

    `failures_in_a_row` open it, and so do `failed_share` of the last `WINDOW` calls once there were `min_calls`. It stays open
    for `open_s` seconds, twice as long after each trial that failed, and at most `max_open_s`.
    """

    failures_in_a_row: int = 5
    failed_share: float = 0.5
    min_calls: int = 10
    open_s: float = 5.0
    max_open_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Ticket:
    """Leave to make one call. `period` is that of the breaker: a call that outlived it says nothing about the next one."""

    period: int
    is_trial: bool = False


@dataclass(slots=True)
class Breaker:
    """Decides whether calls to one dependency are worth making.

    Every ticket is handed in exactly once: `succeeded`, `failed` or `given_up`.
    """

    policy: BreakerPolicy = field(default_factory=BreakerPolicy)
    why: str = ""
    opened: int = 0
    trials: int = 0
    _open_until_s: float | None = None
    _trial_running: bool = False
    _failed_trials: int = 0
    _period: int = 0
    _in_a_row: int = 0
    _window: deque[bool] = field(default_factory=lambda: deque[bool](maxlen=WINDOW))

    def state(self, now_s: float) -> State:
        """Closed: calls go through. Open: none does. Half open: one trial may, or does."""
        if self._open_until_s is None:
            return "closed"
        return "half_open" if self._trial_running or now_s >= self._open_until_s else "open"

    def ask(self, now_s: float) -> Ticket | None:
        """Leave to call, or None. While it is open and its time has come, one caller at a time gets a ticket for a trial."""
        if self._open_until_s is None:
            return Ticket(self._period)
        if self._trial_running or now_s < self._open_until_s:
            return None
        self._trial_running = True
        self.trials += 1
        return Ticket(self._period, is_trial=True)

    def opens_in_s(self, now_s: float) -> float:
        """Seconds until the next trial may begin; 0 when calls go through, or a trial is due or running."""
        return max(0.0, (self._open_until_s or now_s) - now_s)

    def succeeded(self, ticket: Ticket) -> None:
        """The call went well. A trial that did closes the breaker, with all failures forgotten."""
        if ticket.period != self._period:
            return
        if ticket.is_trial:
            self._close()
            return
        self._in_a_row = 0
        self._window.append(True)

    def failed(self, ticket: Ticket, now_s: float, *, why: str = "", for_everybody: bool = False) -> None:
        """The call failed for a reason that lies with the dependency.

        Args:
            for_everybody: The reason is known to hold for every call, as a bad key does: it opens at once.
        """
        if ticket.period != self._period:
            return
        if ticket.is_trial:
            self._failed_trials += 1
            self._open(now_s, why)
            return
        self._in_a_row += 1
        self._window.append(False)
        if for_everybody or self._is_too_much():
            self._open(now_s, why)

    def given_up(self, ticket: Ticket) -> None:
        """The call told nothing: it was cancelled, limited, or refused for what it asked."""
        if ticket.is_trial and ticket.period == self._period:
            self._trial_running = False

    def _is_too_much(self) -> bool:
        share = self._window.count(False) / len(self._window)
        return self._in_a_row >= self.policy.failures_in_a_row or (
            len(self._window) >= self.policy.min_calls and share >= self.policy.failed_share
        )

    def _open(self, now_s: float, why: str) -> None:
        wait_s = min(self.policy.open_s * 2 ** min(self._failed_trials, 32), self.policy.max_open_s)
        self.opened += self._open_until_s is None
        self._open_until_s, self._trial_running, self.why = now_s + wait_s, False, why
        self._period += 1

    def _close(self) -> None:
        self._open_until_s, self._trial_running, self.why = None, False, ""
        self._failed_trials = self._in_a_row = 0
        self._window.clear()
        self._period += 1
