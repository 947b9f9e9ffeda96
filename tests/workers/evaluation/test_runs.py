"""A run of a dataset: what is kept, what goes on, and what is told."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from flows.approvals.rates import Group, Rates
from flows.evaluation.observation import Observation
from flows.evaluation.tasks import Call, Task
from tests.fakes.clock import START
from topics.errors import ConfigError, OutageError, UnavailableError
from workers.evaluation import report, runs
from workers.evaluation.running import run_tasks
from workers.evaluation.runs import RESULTS_FILE, Run, RunInfo

READ = Call(tool="read", arguments={"order": "#1"})


def task(name: str, **changed: Any) -> Task:
    fields: dict[str, Any] = {"task_id": name, "messages": ("Hello",), "calls": (READ,), "route": ("answered",)}
    return Task(**fields | changed)


TASKS = (task("one"), task("two"), task("three"))


def info(tasks: tuple[Task, ...] = TASKS, **changed: Any) -> RunInfo:
    fields: dict[str, Any] = {
        "dataset": "d",
        "mode": "strict",
        "approver": "expected",
        "model": "m",
        "graph_version": "1",
        "now": START,
    }
    return runs.info_for(tasks, **fields | changed)


class Scripted:
    """A driver that does as it is told for a task, and remembers what it was asked."""

    def __init__(self, **deeds: Any) -> None:
        self.deeds = deeds
        self.driven: list[str] = []
        self.tenants: set[str] = set()
        self.forgotten: list[str] = []
        self.most_at_once = self.at_once = 0

    async def drive(self, one: Task, *, tenant: str) -> Observation:
        self.driven.append(one.task_id)
        self.tenants.add(tenant)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await anyio.lowlevel.checkpoint()
        self.at_once -= 1
        deed = self.deeds.get(one.task_id, READ)
        if isinstance(deed, BaseException):
            raise deed
        if deed == "hang":
            await anyio.sleep_forever()
        return Observation(calls=(deed,), text="", ending="answered", asked=0)

    async def forget(self, one: Task, *, tenant: str) -> None:
        del tenant
        self.forgotten.append(one.task_id)


async def run(
    folder: Path, driver: Scripted, *, tasks: tuple[Task, ...] = TASKS, timeout_s: float = 30.0, concurrency: int = 2
) -> Run:
    begun = runs.begin(folder, info(tasks))
    await run_tasks(begun, tasks, driver, concurrency=concurrency, task_timeout_s=timeout_s, told=lambda _done, _all: None)
    return begun


async def test_every_task_has_a_tenant_of_its_own_and_no_more_run_at_once_than_may(tmp_path):
    driver = Scripted()
    done = await run(tmp_path, driver)
    assert set(done.results) == {"one", "two", "three"}
    assert all(one.as_scores().is_right for one in done.results.values())
    assert len(driver.tenants) == 3
    assert driver.most_at_once == 2
    assert sorted(driver.forgotten) == ["one", "three", "two"]


@pytest.mark.parametrize(
    ("deed", "code"),
    [(UnavailableError("x"), "unavailable"), (OutageError("x"), "outage"), (KeyError("secret"), "unexpected KeyError")],
)
async def test_a_task_that_does_not_end_scores_nothing_and_is_never_left_out(tmp_path, deed, code):
    driver = Scripted(two=deed)
    done = await run(tmp_path, driver)
    assert done.results["two"].error == code
    assert done.results["two"].scores["tools"] == 0.0
    assert "secret" not in (tmp_path / RESULTS_FILE).read_text()
    assert "two" not in driver.forgotten
    assert report.report_of(done)["not_ended"] == ["two"]


async def test_a_task_that_hangs_has_its_time(tmp_path):
    done = await run(tmp_path, Scripted(two="hang"), timeout_s=0.05)
    assert done.results["two"].error == "timed_out"


async def test_what_no_task_would_survive_ends_the_run_with_what_is_done_kept(tmp_path):
    with pytest.raises(ConfigError, match="no such model"):
        await run(tmp_path, Scripted(two=ConfigError("no such model")), concurrency=1)
    assert set(runs.load(tmp_path).results) == {"one"}


async def test_a_run_that_was_cut_off_goes_on_with_what_is_left_under_the_same_names(tmp_path):
    first = Scripted(two=UnavailableError("x"))
    await run(tmp_path, first, tasks=TASKS)
    lines = (tmp_path / RESULTS_FILE).read_text().splitlines()
    kept = [line for line in lines if json.loads(line)["task_id"] != "three"]
    (tmp_path / RESULTS_FILE).write_text("\n".join([*kept, '{"task_id": "thr']))
    again = Scripted()
    done = await run(tmp_path, again)
    assert sorted(again.driven) == ["three", "two"]
    assert again.tenants < first.tenants
    assert set(runs.load(tmp_path).results) == set(done.results) == {"one", "two", "three"}


async def test_a_line_ends_where_json_lines_end_and_nowhere_else(tmp_path):
    """JSON may hold what Unicode takes for a line's end, and models write it."""
    odd = Call(tool="read", arguments={"order": "a\u2028b\u2029c\x85d"})
    done = await run(tmp_path, Scripted(two=odd))
    assert runs.load(tmp_path).results == done.results


@pytest.mark.parametrize("changed", [{"mode": "superset"}, {"approver": "all"}, {"tasks": TASKS[:2]}])
def test_a_folder_holds_one_run_of_one_thing(tmp_path, changed):
    runs.begin(tmp_path, info())
    with pytest.raises(ConfigError, match="another"):
        runs.begin(tmp_path, info(**changed))


def test_a_folder_without_a_run_is_told_in_one_sentence(tmp_path):
    with pytest.raises(ConfigError, match="holds no run"):
        runs.load(tmp_path)


async def test_known_exceptions_are_told_with_their_reason_and_count_in_no_mean(tmp_path):
    tasks = (task("one"), task("odd", exception="the data names an order that nobody has"))
    done = await run(tmp_path, Scripted(odd=Call(tool="other")), tasks=tasks)
    told = report.report_of(done)
    assert (told["tasks"], told["right"]) == (1, 1)
    assert told["scores"]["tools"] == {"mean": 1.0, "tasks": 1}
    assert told["exceptions"] == {"odd": "the data names an order that nobody has"}
    assert {one["task_id"] for one in told["results"]} == {"one", "odd"}


async def test_the_page_shows_everything_and_obeys_nothing_of_what_models_wrote(tmp_path):
    evil = Call(tool="<script>alert(1)</script>", arguments={"x": "<img src=http://evil.example/>"})
    done = await run(tmp_path, Scripted(two=evil))
    rates = Rates(Group("refund", "1", ""), 4, 2, 1, 1, 0, 0, 0)
    page = report.page_of(report.report_of(done, rates=[rates]))
    assert "2 of 3 tasks are right" in page
    assert "25.0 %" in page
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert "<img" not in page
    assert "http://evil.example" in page
    assert "Content-Security-Policy" in page
