"""The retail tasks as a dataset."""

from collections import Counter

import pytest

from flows.evaluation.tasks import read_tasks
from flows.toolsets.retail import toolset
from topics.errors import ConfigError
from workers.evaluation.retail import named_dataset, retail_tasks

TASKS = retail_tasks()


def test_every_task_of_every_split_is_there_and_none_is_excepted():
    assert Counter(task.task_id.split("-")[1] for task in TASKS) == {"test": 115, "dev": 20, "train": 500}
    assert len({task.task_id for task in TASKS}) == 635
    assert [task.task_id for task in TASKS if task.exception] == []


def test_the_expected_route_asks_about_exactly_the_calls_that_this_shop_asks_about():
    """The data says which tools change something; the toolset says of which ones a person is asked. Both mean the same."""
    asking = {one.name for one in toolset.tools if one.effect != "READ"}
    for task in TASKS:
        assert ("asked" in task.route) == bool({call.tool for call in task.calls} & asking)
        assert task.route[-1] == "answered"


def test_every_right_call_is_one_of_the_toolset():
    assert {call.tool for task in TASKS for call in task.calls} <= {one.name for one in toolset.tools}


def test_the_dataset_can_be_written_and_read_again():
    assert read_tasks(task.model_dump_json(exclude_none=True) for task in TASKS[:30]) == TASKS[:30]


def test_names_of_datasets():
    assert len(named_dataset("retail:dev") or ()) == 20
    assert len(named_dataset("retail") or ()) == 635
    assert named_dataset("tasks.jsonl") is None
    with pytest.raises(ConfigError, match="no split"):
        named_dataset("retail:nope")
