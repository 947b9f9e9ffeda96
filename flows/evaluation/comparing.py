"""A run as a whole, and one run held against an earlier one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from flows.evaluation.scoring import NAMES, Scores

DEFAULT_MAX_REGRESSION: Final = 0.02


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of one score, over the tasks that have it; None where none has."""

    value: float | None
    tasks: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Means of both runs over the tasks that both have. `worse` and `better` name tasks by the score that moved.

    `missing` are tasks that the old run has and the new one has not: a task that was left out cannot get worse.
    """

    old: Mapping[str, Mean]
    new: Mapping[str, Mean]
    worse: Mapping[str, tuple[str, ...]]
    better: Mapping[str, tuple[str, ...]]
    missing: tuple[str, ...]
    max_regression: float
    fallen: tuple[str, ...] = field(default=())

    @property
    def holds(self) -> bool:
        """Whether nothing fell by more than what was set, and no task is missing."""
        return not self.fallen and not self.missing


def means(scores: Sequence[Scores]) -> dict[str, Mean]:
    """The mean of each score."""
    return {name: _mean([value for one in scores if (value := one.as_dict()[name]) is not None]) for name in NAMES}


def compare(old: Mapping[str, Scores], new: Mapping[str, Scores], *, max_regression: float) -> Comparison:
    """Hold a run against an earlier one, task by task.

    Args:
        max_regression: By how much the mean of a score may fall.
    """
    both = [task_id for task_id in old if task_id in new]
    before, after = means([old[one] for one in both]), means([new[one] for one in both])
    return Comparison(
        old=before,
        new=after,
        worse={name: _moved(both, new, old, name) for name in NAMES},
        better={name: _moved(both, old, new, name) for name in NAMES},
        missing=tuple(task_id for task_id in old if task_id not in new),
        max_regression=max_regression,
        fallen=tuple(name for name in NAMES if _fell(before[name], after[name], max_regression)),
    )


def _mean(values: Sequence[float]) -> Mean:
    return Mean(sum(values) / len(values) if values else None, len(values))


def _fell(before: Mean, after: Mean, max_regression: float) -> bool:
    """A score that was given and is given no more has fallen all the way."""
    if before.value is None:
        return False
    # Sums of thirds must not fail a bound that they meet.
    return before.value - (after.value or 0.0) > max_regression + 1e-9


def _moved(both: Sequence[str], low: Mapping[str, Scores], high: Mapping[str, Scores], name: str) -> tuple[str, ...]:
    """Tasks whose score is lower in one run than in the other."""
    return tuple(task_id for task_id in both if (high[task_id].as_dict()[name] or 0.0) > (low[task_id].as_dict()[name] or 0.0))
