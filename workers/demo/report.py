"""What the demo counted, and whether that is how it must be."""

from dataclasses import asdict, dataclass
from typing import Any

from topics.errors import SluiceError


class DemoFailedError(SluiceError):
    """The accounts do not add up."""

    code = "demo_failed"


@dataclass(slots=True)
class Report:
    """Counts from the topics, the index and the back office's own journal."""

    tickets_triaged: int = 0
    articles_indexed: int = 0
    answers_completed: int = 0
    answers_cited: int = 0
    streams_true: int = 0
    tasks_run: int = 0
    end_states_right: int = 0
    end_states_expected: int = 0
    approvals_requested: int = 0
    decisions_accepted: int = 0
    decisions_edited: int = 0
    decisions_rejected: int = 0
    decisions_refused: int = 0
    votes_counted: int = 0
    edits_by_two: int = 0
    reminders: int = 0
    escalations: int = 0
    expired: int = 0
    outcomes_chained: int = 0
    effects: int = 0
    double_effects: int = 0
    dead_letters: int = 0
    replayed: int = 0
    discarded: int = 0
    lost: int = 0
    killed_workers: int = 0
    seconds: float = 0.0
    broker: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)

    def rows(self) -> list[tuple[str, object]]:
        """For people."""
        return [(name.replace("_", " "), value) for name, value in asdict(self).items()]

    def check(self) -> None:
        """Refuse a run whose accounts are wrong.

        Raises:
            DemoFailedError: Something was lost or done twice, a stream was not true, or an end state is not the expected one.
        """
        wrong = [
            name
            for name, right in {
                "nothing is lost": self.lost == 0,
                "no effect twice": self.double_effects == 0,
                "streams are true": self.streams_true == self.answers_completed,
                "end states are right": self.end_states_right == self.end_states_expected,
                "what was replayed is done": self.replayed > 0,
                "a duplicate and a late decision were refused": self.decisions_refused >= 2,
                "a worker was killed": self.killed_workers > 0,
                "some calls needed two people": self.votes_counted > 0 and self.edits_by_two > 0,
                "time reminded, escalated and said no": min(self.reminders, self.escalations, self.expired) > 0,
                "the chain of outcomes is whole": self.outcomes_chained > 0,
            }.items()
            if not right
        ]
        if wrong:
            raise DemoFailedError(f"this did not hold: {'; '.join(wrong)}")
