import pytest

from flows.evaluation.comparing import compare, means
from flows.evaluation.scoring import Scores

GOOD, BAD = Scores(tools=1.0, route=1.0), Scores(tools=0.0, route=1.0)


def run(*scores):
    return {f"task-{number}": one for number, one in enumerate(scores)}


def test_a_mean_is_over_the_tasks_that_have_the_score():
    found = means([GOOD, BAD, Scores(answer=0.5)])
    assert (found["tools"].value, found["tools"].tasks) == (0.5, 2)
    assert (found["answer"].value, found["answer"].tasks) == (0.5, 1)
    assert found["end_state"].value is None


def test_a_score_that_fell_by_more_than_it_may_is_named_with_its_tasks():
    found = compare(run(GOOD, GOOD, GOOD, GOOD), run(GOOD, BAD, GOOD, GOOD), max_regression=0.2)
    assert not found.holds
    assert found.fallen == ("tools",)
    assert found.worse["tools"] == ("task-1",)
    assert found.worse["route"] == ()


@pytest.mark.parametrize(("bound", "holds"), [(0.25, True), (0.24, False)])
def test_the_bound_itself_still_holds(bound, holds):
    assert compare(run(GOOD, GOOD, GOOD, GOOD), run(GOOD, BAD, GOOD, GOOD), max_regression=bound).holds is holds


def test_a_task_that_was_left_out_cannot_hide_that_it_got_worse():
    found = compare(run(GOOD, GOOD), run(GOOD), max_regression=1.0)
    assert found.missing == ("task-1",)
    assert not found.holds


def test_a_score_that_is_no_longer_given_has_fallen():
    assert compare(run(GOOD), run(Scores(route=1.0)), max_regression=0.5).fallen == ("tools",)


def test_tasks_that_are_new_change_nothing_and_better_ones_are_named():
    found = compare(run(BAD), run(GOOD, BAD), max_regression=0.0)
    assert found.holds
    assert found.better["tools"] == ("task-0",)
    assert found.new["tools"].tasks == 1
