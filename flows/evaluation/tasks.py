"""A dataset: what somebody asks, and what a right agent does about it."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from topics.errors import ConfigError
from topics.events import FailureCode

Mode = Literal["strict", "unordered", "superset"]
Station = Literal["searched", "asked", "escalated", "answered", "unanswerable"] | FailureCode


class Call(BaseModel):
    """A tool call: one that was made, or one that should be."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tool: str
    arguments: dict[str, Any] = Field(default_factory=dict[str, Any])


class Change(BaseModel):
    """A record as it must be in the end; `key` is its id in `table`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    table: str
    key: str
    after: dict[str, Any]


class Task(BaseModel):
    """One line of a dataset. What is left out, or null, is not scored.

    `calls` are all tool calls of the right solution, in order. `changes` are all records that differ in the end; an empty list
    says that nothing may change. `outputs` are texts that the answer must contain. `route` names the stations that the task
    must come by, in this order: `searched`, `asked` (a person), `escalated`, and how it ends. `exception` says why the data is
    known to be wrong here: the task is run and reported, and counted apart.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    task_id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    messages: tuple[str, ...] = Field(min_length=1)
    user_id: str | None = None
    calls: tuple[Call, ...] | None = None
    changes: tuple[Change, ...] | None = None
    outputs: tuple[str, ...] = ()
    route: tuple[Station, ...] | None = None
    mode: Mode | None = None
    exception: str | None = None


def read_tasks(lines: Iterable[str]) -> tuple[Task, ...]:
    """Read a dataset, one JSON object a line; empty lines are passed over.

    Raises:
        ConfigError: A line is no task, an id is there twice, or there is none. The first wrong line is named.
    """
    tasks: dict[str, Task] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            task = Task.model_validate_json(line)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "the line"
            raise ConfigError(f"line {number} of the dataset is no task: {where}: {first['msg']}") from error
        if task.task_id in tasks:
            raise ConfigError(f"line {number} of the dataset: task {task.task_id} is there twice")
        tasks[task.task_id] = task
    if not tasks:
        raise ConfigError("the dataset has no task")
    return tuple(tasks.values())


def digest_of(tasks: Sequence[Task]) -> str:
    """What tells two datasets apart: 16 hex digits over all tasks in their order."""
    return hashlib.sha256("\n".join(task.model_dump_json() for task in tasks).encode()).hexdigest()[:16]
