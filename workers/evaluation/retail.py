"""The retail tasks of `infra/local/data` as a dataset: 635 orders whose right calls and end states are known."""

from collections.abc import Sequence
from typing import Final

from flows.evaluation.observation import ESCALATING
from flows.evaluation.tasks import Call, Change, Station, Task
from infra.local.data import datasets
from infra.local.data.datasets import RetailTask, Split
from topics.errors import ConfigError

SPLITS: Final[tuple[Split, ...]] = ("test", "dev", "train")
NAME: Final = "retail"


def named_dataset(name: str) -> tuple[Task, ...] | None:
    """`retail`, or `retail:test`, `retail:dev`, `retail:train`; None for another name.

    Raises:
        ConfigError: There is no such split, or the data is not there, as in the image.
    """
    kind, _, split = name.partition(":")
    if kind != NAME:
        return None
    if split and split not in SPLITS:
        raise ConfigError(f"no split {split}; there are: {', '.join(SPLITS)}")
    try:
        return retail_tasks([one for one in SPLITS if split in {"", one}])
    except FileNotFoundError as error:
        raise ConfigError("the retail data is not in this installation: give a file of JSON lines") from error


def retail_tasks(splits: Sequence[Split] = SPLITS) -> tuple[Task, ...]:
    """The tasks of some splits. No task needs an exception: what the shop refuses in the right solutions changes nothing."""
    found = {split: datasets.retail_tasks(split) for split in SPLITS}
    # A call that the shop refuses is no change, and yet a person is asked about it: what counts is what its tool may do.
    changing = frozenset(action.name for tasks in found.values() for one in tasks for action in one.actions if action.mutates)
    return tuple(_task(one, changing) for split in splits for one in found[split])


def _task(one: RetailTask, changing: frozenset[str]) -> Task:
    return Task(
        task_id=one.task_id,
        messages=(one.instruction,),
        user_id=one.user_id,
        calls=tuple(Call(tool=action.name, arguments=action.arguments) for action in one.actions),
        changes=tuple(Change(table=change.table, key=change.key, after=change.after) for change in one.expected_changes),
        outputs=one.outputs,
        route=_route(frozenset(action.name for action in one.actions), changing),
    )


def _route(tools: frozenset[str], changing: frozenset[str]) -> tuple[Station, ...]:
    asked: tuple[Station, ...] = ("asked",) if tools & changing else ()
    escalated: tuple[Station, ...] = ("escalated",) if tools & ESCALATING else ()
    return (*asked, *escalated, "answered")
