"""What a race came to, counted from what was heard on the topics and from the back office's journal. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench.race.plan import Shot


@dataclass(frozen=True, slots=True)
class Account:
    """The counts of one race.

    `silent`: decisions that nobody answered. `wrong`: sentences about threads whose effects are not what was decided.
    """

    threads: int
    decisions: int
    answered: int
    effects: int
    effects_expected: int
    double_effects: int
    answers: dict[str, int] = field(default_factory=dict[str, int])
    silent: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether every decision has its answer, and every thread the effects of its one winner."""
        return not self.silent and not self.wrong and self.effects == self.effects_expected and not self.double_effects


def account(shots: Sequence[Shot], *, threads: int, answers: Mapping[str, str], effects: Mapping[int, int]) -> Account:
    """Count.

    Args:
        answers: Decision id -> `won`, or the code of its refusal.
        effects: Thread -> how often its call was applied.
    """
    winners: dict[int, list[Shot]] = {thread: [] for thread in range(threads)}
    for shot in shots:
        if answers.get(shot.decision_id) == "won":
            winners[shot.thread].append(shot)
    expected = {thread: sum(shot.choice == "approve" for shot in won) for thread, won in winners.items()}
    wrong = [
        f"thread {thread}: {len(won)} winners, {effects.get(thread, 0)} effects, {expected[thread]} expected"
        for thread, won in winners.items()
        if len(won) != 1 or effects.get(thread, 0) != expected[thread]
    ]
    return Account(
        threads=threads,
        decisions=len(shots),
        answered=sum(shot.decision_id in answers for shot in shots),
        effects=sum(effects.values()),
        effects_expected=sum(expected.values()),
        double_effects=doubles(effects),
        answers=dict(Counter(answers[shot.decision_id] for shot in shots if shot.decision_id in answers)),
        silent=tuple(shot.decision_id for shot in shots if shot.decision_id not in answers),
        wrong=tuple(wrong),
    )


def doubles(effects: Mapping[int, int]) -> int:
    """Effects beyond the first of each thread."""
    return sum(max(0, count - 1) for count in effects.values())
