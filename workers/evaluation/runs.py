"""A run of a dataset in a folder of its own: what it was made with, and one line for each task that is done.

`run.json` names the run; `results.jsonl` grows as tasks end. A run that was cut off goes on with those that are not in it.
"""

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from flows.evaluation import scoring
from flows.evaluation.scoring import Scores
from flows.evaluation.tasks import Call, Mode, Station, Task, digest_of
from infra.local.folders import writable_folder
from topics.errors import ConfigError
from workers.evaluation.driver import Approver

RUN_FILE: Final = "run.json"
RESULTS_FILE: Final = "results.jsonl"


class RunInfo(BaseModel):
    """What a run was made with. Two runs may be compared when their datasets are about the same tasks."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    run_id: str
    dataset: str
    dataset_digest: str
    mode: Mode
    approver: Approver
    model: str
    graph_version: str
    started_at: datetime


class Result(BaseModel):
    """What became of one task. `error` is the code of what kept it from ending; its scores are then 0."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    task_id: str
    scores: dict[str, float | None]
    calls: tuple[Call, ...] = ()
    route: tuple[Station, ...] = ()
    expected_route: tuple[Station, ...] | None = None
    differences: tuple[str, ...] = ()
    asked: int = 0
    errors: int = 0
    seconds: float = 0.0
    exception: str | None = None
    error: str | None = None

    def as_scores(self) -> Scores:
        """The scores, typed."""
        return Scores(**{name: self.scores.get(name) for name in scoring.NAMES})


@dataclass(slots=True)
class Run:
    """A run and what it has so far, by task."""

    folder: Path
    info: RunInfo
    results: dict[str, Result] = field(default_factory=dict[str, Result])

    def add(self, result: Result) -> None:
        """Keep a result: the line is in the file on return."""
        self.results[result.task_id] = result
        with (self.folder / RESULTS_FILE).open("a", encoding="utf-8") as file:
            file.write(result.model_dump_json() + "\n")

    def scores(self, *, exceptions: bool = True) -> dict[str, Scores]:
        """The scores by task. Known exceptions may be left out."""
        return {one.task_id: one.as_scores() for one in self.results.values() if exceptions or one.exception is None}


def begin(folder: Path, wanted: RunInfo) -> Run:
    """Start a run in a folder, or go on with the one that is there.

    Raises:
        ConfigError: The folder cannot be written, or holds a run of something else.
    """
    folder = writable_folder(folder, setting="--out")
    if not (folder / RUN_FILE).exists():
        (folder / RUN_FILE).write_text(wanted.model_dump_json(indent=2))
        return Run(folder, wanted)
    run = load(folder)
    _rewrite(run)
    for name in ("dataset_digest", "mode", "approver"):
        if getattr(run.info, name) != getattr(wanted, name):
            raise ConfigError(f"{folder} holds a run with another {name.replace('_', ' ')}: name another folder with --out")
    return run


def load(folder: Path) -> Run:
    """Read a run.

    Raises:
        ConfigError: There is none, or it cannot be read.
    """
    try:
        info = RunInfo.model_validate_json((folder / RUN_FILE).read_bytes())
        # Not `splitlines`: it also cuts at U+2028 and the like, which may stand in a JSON string as they are.
        lines = (folder / RESULTS_FILE).read_text(encoding="utf-8").split("\n") if (folder / RESULTS_FILE).exists() else []
        results = [Result.model_validate_json(line) for line in _whole(lines)]
    except (OSError, ValidationError, ValueError) as error:
        raise ConfigError(f"{folder} holds no run of `sluice eval` that can be read ({type(error).__name__})") from error
    return Run(folder, info, {one.task_id: one for one in results})


def new_run_id() -> str:
    """A name that no other run has: back offices and checkpoints of two runs must not meet."""
    return secrets.token_hex(4)


def info_for(
    tasks: Sequence[Task], *, dataset: str, mode: Mode, approver: Approver, model: str, graph_version: str, now: datetime
) -> RunInfo:
    """What a new run of a dataset is made with."""
    return RunInfo(
        run_id=new_run_id(),
        dataset=dataset,
        dataset_digest=digest_of(tasks),
        mode=mode,
        approver=approver,
        model=model,
        graph_version=graph_version,
        started_at=now,
    )


def unlike(old: RunInfo, new: RunInfo) -> dict[str, tuple[str, str]]:
    """What two runs were made with that differs, by name: the model and the graph may, the way of scoring should not."""
    names = ("dataset_digest", "mode", "approver", "model", "graph_version")
    return {name: (getattr(old, name), getattr(new, name)) for name in names if getattr(old, name) != getattr(new, name)}


def _rewrite(run: Run) -> None:
    """Write what was read: a line that a crash cut off would swallow the next one."""
    lines = "".join(f"{one.model_dump_json()}\n" for one in run.results.values())
    fresh = run.folder / f"{RESULTS_FILE}.new"
    fresh.write_text(lines, encoding="utf-8")
    fresh.replace(run.folder / RESULTS_FILE)


def _whole(lines: Sequence[str]) -> Sequence[str]:
    """All lines but one at the end that a crash cut off."""
    if not lines:
        return lines
    try:
        json.loads(lines[-1])
    except ValueError:
        return lines[:-1]
    return lines
