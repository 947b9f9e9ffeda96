"""Five scores of a task, each between 0 and 1, or None where the dataset says nothing about it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from flows.evaluation.equality import alike
from flows.evaluation.observation import Observation
from flows.evaluation.tasks import Call, Change, Mode, Task
from flows.evaluation.trajectory import Trajectory, follow

NAMES: Final = ("answer", "tools", "arguments", "route", "end_state")


@dataclass(frozen=True, slots=True)
class Scores:
    """`tools` and `arguments` are the trajectory."""

    answer: float | None = None
    tools: float | None = None
    arguments: float | None = None
    route: float | None = None
    end_state: float | None = None

    @property
    def is_right(self) -> bool:
        """Whether everything that was scored is right."""
        return all(one in {None, 1.0} for one in self.as_dict().values())

    @property
    def does_right(self) -> bool:
        """Whether the calls and what they left behind are right."""
        return all(one in {None, 1.0} for one in (self.tools, self.arguments, self.end_state))

    def as_dict(self) -> dict[str, float | None]:
        """By name."""
        return {name: getattr(self, name) for name in NAMES}


@dataclass(frozen=True, slots=True)
class Judged:
    """A task's scores, and a sentence for each thing that is not as it should be."""

    scores: Scores
    differences: tuple[str, ...]


def judge(task: Task, seen: Observation, *, mode: Mode = "strict") -> Judged:
    """Score what was seen. A task's own mode comes before `mode`."""
    trajectory = None if task.calls is None else follow(task.calls, seen.calls, mode=task.mode or mode)
    scores = Scores(
        answer=_answer(task.outputs, seen.text),
        tools=trajectory and trajectory.tools,
        arguments=trajectory and trajectory.arguments,
        route=None if task.route is None else float(task.route == seen.route),
        end_state=None if task.changes is None or seen.changes is None else _end_state(task.changes, seen.changes),
    )
    return Judged(scores, tuple(_differences(task, seen, trajectory)))


def failed(task: Task) -> Scores:
    """The scores of a task that came to no end: 0 for all that the dataset asks for."""
    return Scores(
        answer=0.0 if task.outputs else None,
        tools=None if task.calls is None else 0.0,
        arguments=None if task.calls is None else 0.0,
        route=None if task.route is None else 0.0,
        end_state=None if task.changes is None else 0.0,
    )


def _answer(outputs: Sequence[str], text: str) -> float | None:
    return sum(_says(text, wanted) for wanted in outputs) / len(outputs) if outputs else None


def _says(text: str, wanted: str) -> bool:
    # People write 1,234.50 where the data has 1234.50.
    return wanted.lower().replace(",", "") in text.lower().replace(",", "")


def _end_state(expected: Sequence[Change], found: Sequence[Change]) -> float:
    """The share of records that are as they must be, of all that should change or did."""
    right, there = _by_record(expected), _by_record(found)
    every = right.keys() | there.keys()
    return sum(alike(right.get(one), there.get(one)) for one in every) / len(every) if every else 1.0


def _by_record(changes: Sequence[Change]) -> dict[tuple[str, str], Any]:
    return {(change.table, change.key): change.after for change in changes}


def _differences(task: Task, seen: Observation, trajectory: Trajectory | None) -> Iterator[str]:
    if trajectory is not None:
        yield from (f"missing: {_shown(call)}" for call in trajectory.missing)
        yield from (f"not wanted: {_shown(call)}" for call in trajectory.extra)
        yield from (f"arguments: {_shown(made)} instead of {_shown(call)}" for call, made in trajectory.wrong_arguments)
    if task.route not in {None, seen.route}:
        yield f"route: {' > '.join(seen.route)} instead of {' > '.join(task.route or ())}"
    yield from (f"the answer does not say {wanted!r}" for wanted in task.outputs if not _says(seen.text, wanted))
    if task.changes is not None and seen.changes is not None:
        right, there = _by_record(task.changes), _by_record(seen.changes)
        for table, key in sorted(right.keys() | there.keys()):
            if not alike(right.get((table, key)), there.get((table, key))):
                yield f"end state: {table} {key} is not as it must be"


def _shown(call: Call) -> str:
    return f"{call.tool}({', '.join(f'{name}={value!r}' for name, value in call.arguments.items())})"
