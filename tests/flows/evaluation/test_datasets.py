import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.evaluation.tasks import Call, Task, digest_of, read_tasks
from topics.errors import ConfigError


def line(task_id="one"):
    return f'{{"task_id": "{task_id}", "messages": ["Hello"], "calls": [{{"tool": "a"}}], "route": ["answered"]}}'


def test_a_dataset_is_one_task_a_line_and_empty_lines_are_passed_over():
    tasks = read_tasks([line("one"), "", "  ", line("two")])
    assert [task.task_id for task in tasks] == ["one", "two"]
    assert tasks[0].calls == (Call(tool="a"),)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([line(), "{"], "line 2 of the dataset is no task"),
        ([line(), line()], "line 2 of the dataset: task one is there twice"),
        (['{"task_id": "x", "messages": []}'], "messages"),
        (['{"task_id": "x", "messages": ["a"], "expected": []}'], "expected"),
        (['{"task_id": "x", "messages": ["a"], "route": ["home"]}'], "route"),
        ([], "the dataset has no task"),
    ],
)
def test_a_wrong_dataset_is_refused_with_the_place_and_without_its_text(lines, said):
    with pytest.raises(ConfigError, match=said) as refused:
        read_tasks(lines)
    assert "Hello" not in str(refused.value)


@given(
    st.lists(
        st.builds(Task, task_id=st.from_regex(r"[a-z]{1,8}", fullmatch=True), messages=st.just(("x",))),
        unique_by=lambda t: t.task_id,
        min_size=1,
    )
)
def test_a_dataset_that_is_written_is_read_as_it_was(tasks):
    read = read_tasks(task.model_dump_json(exclude_none=True) for task in tasks)
    assert read == tuple(tasks)
    assert digest_of(read) == digest_of(tasks)
    assert digest_of([*tasks, tasks[0]]) != digest_of(tasks)
