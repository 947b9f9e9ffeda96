"""Retail tasks through `sluice eval`'s own parts, on real servers: what is right is right, and what is planted is found."""

import pytest

from bench.figures.tasks import FAULTS_SCORE, PLANTS
from flows.evaluation.scoring import NAMES
from flows.evaluation.tasks import Call
from tests.fakes.clock import START
from tests.stories.servers import KAFKA_BOOTSTRAP
from workers.evaluation import retail, runs
from workers.evaluation.running import run_tasks
from workers.evaluation.stage import open_driver

# A broker has no part in it: once is enough.
ONCE = pytest.mark.parametrize("servers", ["external" if KAFKA_BOOTSTRAP else "tansu"], indirect=True, scope="session")
pytestmark = [pytest.mark.story, pytest.mark.timeout(240), ONCE]

TASKS = {task.task_id: task for task in retail.retail_tasks()}
# Two orders, a refused call, a hand-over to a person, words that the answer must hold, and one that changes nothing.
CHOSEN = ("retail-test-0", "retail-test-12", "retail-test-20", "retail-test-64", "retail-test-109", "retail-train-161")
PLANTED_IN = "retail-test-0"


async def evaluated(realm, tasks, folder, *, approver="expected"):
    """The results of some tasks, by id."""
    about = {"dataset": "retail", "mode": "strict", "model": "m", "graph_version": "g"}
    async with open_driver(realm.settings, approver=approver) as driver:
        run = runs.begin(folder, runs.info_for(tasks, approver=approver, now=START, **about))
        await run_tasks(run, tasks, driver, concurrency=3, task_timeout_s=90.0, told=lambda _done, _all: None)
    return run.results


def low(result):
    return [name for name in NAMES if result.scores[name] not in {None, 1.0}]


async def test_right_solutions_have_every_score(staffed, tmp_path):
    results = await evaluated(staffed, [TASKS[one] for one in CHOSEN], tmp_path)
    assert {task_id: result.differences for task_id, result in results.items()} == dict.fromkeys(CHOSEN, ())
    assert results["retail-test-12"].route == ("asked", "escalated", "answered")
    assert results["retail-test-64"].errors > 0


@pytest.mark.parametrize("fault", PLANTS)
async def test_a_planted_fault_is_caught_by_its_own_score_and_by_no_other(staffed, world_in, tmp_path, fault):
    task = TASKS[PLANTED_IN]
    async with world_in(staffed) as world:
        await world.model("replies", [{"match": task.messages[0], **one} for one in PLANTS[fault](task)])
        results = await evaluated(staffed, [task], tmp_path)
    assert low(results[PLANTED_IN]) == [FAULTS_SCORE[fault]]


async def test_a_wrong_change_that_somebody_lets_through_is_seen_in_the_records_too(staffed, world_in, tmp_path):
    task = TASKS[PLANTED_IN]
    wrong = dict(task.calls[-1].arguments) | {"item_ids": ["1151293680"], "new_item_ids": ["7706410293"]}
    calls = [*task.calls[:-1], Call(tool=task.calls[-1].tool, arguments=wrong)]
    async with world_in(staffed) as world:
        replies = [{"tool_calls": [{"name": call.tool, "arguments": call.arguments}]} for call in calls]
        await world.model("replies", [{"match": task.messages[0], **one} for one in replies])
        results = await evaluated(staffed, [task], tmp_path, approver="all")
    assert low(results[PLANTED_IN]) == ["arguments", "end_state"]
