"""The intake gate: open, shut after an outage, then ajar for one trial. Pure."""

from dataclasses import dataclass


@dataclass(slots=True)
class IntakeGate:
    """Decides whether records may start.

    An outage shuts the gate until a time; then one record is tried. Its success opens the gate, another outage shuts it
    again. Sources: promise P7; the circuit breaker of Nygard, Release It!, 2nd edition, chapter 5.
    """

    shut_until_s: float | None = None
    trial_running: bool = False
    reason: str = ""

    @property
    def is_open(self) -> bool:
        """Whether no outage is known."""
        return self.shut_until_s is None

    def allowance(self, now_s: float) -> int | None:
        """How many records may start now; None means as many as there are slots."""
        if self.shut_until_s is None:
            return None
        return 0 if self.trial_running or now_s < self.shut_until_s else 1

    def started(self) -> None:
        """A record was started; while the gate is shut it is the trial."""
        if self.shut_until_s is not None:
            self.trial_running = True

    def succeeded(self) -> bool:
        """A record came through. True when that ended an outage."""
        ended = self.shut_until_s is not None
        self.shut_until_s, self.trial_running, self.reason = None, False, ""
        return ended

    def failed(self) -> None:
        """A record failed for a reason of its own: the dependency answered, or another trial will tell."""
        self.trial_running = False

    def outage(self, *, until_s: float, reason: str) -> bool:
        """A dependency is down. True when this began the outage."""
        began = self.shut_until_s is None
        self.shut_until_s, self.trial_running, self.reason = until_s, False, reason
        return began
