"""Every retail task through `sluice eval`'s own parts: what comes out right, and whether a planted fault is caught by its score.

No broker is in it: a task is driven through the agent, its gate, its ledger and its checkpoints on Redis.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import httpx

from bench import rig
from bench.figures.bounds import hold
from flows.evaluation.comparing import means
from flows.evaluation.scoring import NAMES
from flows.evaluation.tasks import Call, Task
from infra.clock import SystemClock
from workers.demo.host import Host
from workers.evaluation import retail, runs
from workers.evaluation.driver import Driver
from workers.evaluation.running import run_tasks
from workers.evaluation.runs import Result, Run
from workers.evaluation.stage import open_driver

TASKS: Final = 40
CONCURRENCY: Final = 4
TASK_TIMEOUT_S: Final = 120.0
PLANTED_IN: Final = "retail-test-0"
OTHER_TOOL: Final = "list_all_product_types"
OTHER_PRODUCT: Final = "6086499569"
REFUSAL: Final = "I cannot help with that."

Replies = list[dict[str, Any]]


async def run(*, full: bool) -> dict[str, Any]:
    """Run the tasks, then the three faults. Prints two tables.

    Raises:
        FigureError: A task is not right, or a fault was caught by another score than its own.
    """
    tasks = retail.retail_tasks()
    chosen = tasks if full else tasks[:: len(tasks) // TASKS]
    async with rig.rig("tansu") as host, open_driver(host.settings, approver="expected") as driver:
        done = await _evaluated(driver, chosen, host)
        planted = next(task for task in tasks if task.task_id == PLANTED_IN)
        caught = {name: await _low_scores(driver, planted, plant(planted), host) for name, plant in PLANTS.items()}
    results = list(done.results.values())
    rows = [(name, mean.tasks, mean.value or 0.0) for name, mean in means([one.as_scores() for one in results]).items()]
    rig.print_table(f"{len(results)} retail tasks", ("score", "tasks", "mean"), rows)
    rig.print_table("Planted faults", ("fault", "caught by"), [(name, ", ".join(low) or "nothing") for name, low in caught.items()])
    for one in results:
        if not one.as_scores().is_right:
            print(f"  {one.task_id}: {'; '.join(one.differences)}")
    return _judged(results, caught)


def _judged(results: Sequence[Result], caught: dict[str, list[str]]) -> dict[str, Any]:
    known = [one for one in results if one.exception is not None]
    right = sum(one.as_scores().does_right for one in results)
    figures = {
        "tasks": len(results),
        "tasks_right": right,
        "tasks_all_scores_right": sum(one.as_scores().is_right for one in results),
        "tasks_known_exceptions": len(known),
        "tasks_calls": sum(len(one.calls) for one in results),
        "tasks_calls_refused": sum(one.errors for one in results),
        "tasks_people_asked": sum(one.asked for one in results),
        **{f"planted_{name}_caught": low == [FAULTS_SCORE[name]] for name, low in caught.items()},
    }
    return hold(
        figures,
        every_task_is_right=right == len(results) - len(known),
        a_wrong_tool_is_caught_by_tools_alone=figures["planted_tool_caught"],
        a_wrong_argument_is_caught_by_arguments_alone=figures["planted_argument_caught"],
        a_wrong_route_is_caught_by_route_alone=figures["planted_route_caught"],
    )


async def _evaluated(driver: Driver, tasks: Sequence[Task], host: Host) -> Run:
    info = runs.info_for(
        tasks,
        dataset=retail.NAME,
        mode="strict",
        approver="expected",
        model=host.settings.model_name,
        graph_version=driver.agent.graph_version,
        now=SystemClock().now(),
    )
    with TemporaryDirectory(prefix="sluice-eval-") as folder:
        run = runs.begin(Path(folder), info)
        await run_tasks(run, tasks, driver, concurrency=CONCURRENCY, task_timeout_s=TASK_TIMEOUT_S, told=lambda _done, _all: None)
    return run


async def _low_scores(driver: Driver, task: Task, replies: Replies, host: Host) -> list[str]:
    """The scores that a model with these replies does not get."""
    url = host.stack.endpoints.model_base_url.removesuffix("/v1") + "/control"
    async with httpx.AsyncClient(timeout=30.0, trust_env=False) as http:
        (await http.post(f"{url}/replies", json=[{"match": task.messages[0], **one} for one in replies])).raise_for_status()
        done = await _evaluated(driver, [task], host)
        (await http.post(f"{url}/reset", json={})).raise_for_status()
    scores = done.results[task.task_id].scores
    return [name for name in NAMES if scores[name] not in {None, 1.0}]


def wrong_tool(task: Task) -> Replies:
    """All calls, the first read replaced by one that nobody needs; the closing words are the model's own."""
    return _played([Call(tool=OTHER_TOOL), *(task.calls or ())[1:]])


def wrong_argument(task: Task) -> Replies:
    """All calls, one read of a product made with another product's id."""
    calls = list(task.calls or ())
    place = next(number for number, call in enumerate(calls) if "product_id" in call.arguments)
    calls[place] = Call(tool=calls[place].tool, arguments={"product_id": OTHER_PRODUCT})
    return _played(calls)


def wrong_route(task: Task) -> Replies:
    """All calls as they should be, and at the end a refusal instead of an answer."""
    return [*_played(task.calls or ()), {"refusal": REFUSAL}]


def _played(calls: Sequence[Call]) -> Replies:
    return [{"tool_calls": [{"name": call.tool, "arguments": call.arguments}]} for call in calls]


PLANTS: Final[dict[str, Callable[[Task], Replies]]] = {"tool": wrong_tool, "argument": wrong_argument, "route": wrong_route}
FAULTS_SCORE: Final = {"tool": "tools", "argument": "arguments", "route": "route"}
