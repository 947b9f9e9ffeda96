"""What `sluice eval` and `sluice threads` say, and with which exit code they end."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flows.evaluation.tasks import Call, Task
from topics.feedback import Feedback
from workers.cli import evaluation, threads
from workers.evaluation import runs
from workers.evaluation.runs import Result
from workers.threads import QueryView, ThreadView

TASKS = tuple(Task(task_id=name, messages=("Hello",), calls=(Call(tool="a"),)) for name in ("one", "two", "three", "four"))
NONE = {"answer": None, "arguments": 1.0, "route": None, "end_state": None}


def run_in(folder: Path, *tools: float, approver: Any = "expected") -> Path:
    info = runs.info_for(
        TASKS, dataset="d", mode="strict", approver=approver, model="m", graph_version="1", now=datetime(2026, 11, 30, tzinfo=UTC)
    )
    run = runs.begin(folder, info)
    for task, score in zip(TASKS, tools, strict=False):
        differences = () if score == 1 else ("missing: a()",)
        run.add(Result(task_id=task.task_id, scores={**NONE, "tools": score}, differences=differences))
    return folder


def call(app: Any, *arguments: str) -> Any:
    return CliRunner().invoke(app, [str(one) for one in arguments], terminal_width=200)


def test_a_run_that_is_no_worse_passes(tmp_path):
    old, new = run_in(tmp_path / "old", 1, 1, 1, 1), run_in(tmp_path / "new", 1, 1, 1, 1)
    said = call(evaluation.app, "compare", old, new, "--json")
    assert said.exit_code == 0
    assert json.loads(said.stdout)["holds"] is True


def test_a_set_regression_fails_and_says_which_score_and_which_tasks(tmp_path):
    old, new = run_in(tmp_path / "old", 1, 1, 1, 1), run_in(tmp_path / "new", 1, 0, 1, 1, approver="none")
    said = call(evaluation.app, "compare", old, new, "--json")
    told = json.loads(said.stdout)
    assert said.exit_code == 1
    assert told["fallen"] == ["tools"]
    assert told["scores"]["tools"]["worse"] == ["two"]
    assert told["run_differently"] == {"approver": ["expected", "none"]}
    assert call(evaluation.app, "compare", old, new, "--max-regression", "0.25").exit_code == 0
    plain = call(evaluation.app, "compare", old, new)
    assert plain.exit_code == 1
    assert "worse in tools: two" in plain.stdout


def test_tasks_that_were_left_out_fail_a_comparison(tmp_path):
    old, new = run_in(tmp_path / "old", 1, 1, 1, 1), run_in(tmp_path / "new", 1, 1)
    said = call(evaluation.app, "compare", old, new)
    assert said.exit_code == 1
    assert "2 tasks of the old run are missing" in said.stderr


def test_a_folder_without_a_run_is_one_sentence_and_code_2(tmp_path):
    said = call(evaluation.app, "compare", tmp_path, tmp_path)
    assert said.exit_code == 2
    assert said.stderr.count("\n") == 1


def test_a_report_is_a_file_for_programs_and_a_page_for_people(tmp_path):
    folder = run_in(tmp_path / "run", 1, 0, 1, 1)
    said = call(evaluation.app, "report", folder)
    assert said.exit_code == 0
    assert "3 of 4 tasks are right" in said.stdout
    assert json.loads((folder / "report.json").read_text())["scores"]["tools"]["mean"] == 0.75
    assert "missing: a()" in (folder / "report.html").read_text()


def test_a_dataset_may_hold_what_unicode_takes_for_a_lines_end(tmp_path):
    dataset, out = tmp_path / "dataset.jsonl", tmp_path / "out.jsonl"
    text = "one\u2028two\u2029three\x85four"
    lines = [json.dumps({"task_id": name, "messages": [text]}, ensure_ascii=False) for name in ("a", "b")]
    dataset.write_bytes("\r\n".join([*lines, ""]).encode())
    said = call(evaluation.app, "export", dataset, "--out", out, "--json")
    assert said.exit_code == 0, said.output
    assert json.loads(said.stdout)["tasks"] == 2
    assert text in out.read_text(encoding="utf-8")
    assert call(evaluation.app, "export", out, "--out", tmp_path / "again.jsonl").exit_code == 0


@pytest.mark.parametrize("wrong", [("--mode", "loose"), ("--approver", "me")])
def test_an_unknown_way_to_run_is_refused_before_anything_starts(tmp_path, wrong):
    said = call(evaluation.app, "run", "retail:dev", "--out", tmp_path / "run", *wrong)
    assert said.exit_code == 2
    assert "wants one of" in said.stderr
    assert not (tmp_path / "run").exists()


SECRET = "my number is 555-1234"


def view() -> ThreadView:
    feedback = Feedback("f1", "q1", "down", SECRET, None)
    query = QueryView("q1", "answered", SECRET, {"ok": 2}, (feedback,), "00-aa-bb-01")
    return ThreadView("acme", "T-17", "finished", "1-x", 1, 3, (query,), (), ("q2",), ())


@pytest.mark.parametrize("as_json", [(), ("--json",)])
@pytest.mark.parametrize("reveal", [(), ("--reveal",)])
def test_peoples_words_are_shown_only_to_who_asks_for_them(monkeypatch, as_json, reveal):
    """P11: what somebody wrote is not shown by the way."""

    async def look(*_: Any, **__: Any) -> ThreadView:
        return view()

    monkeypatch.setattr(threads, "look", look)
    said = call(threads.app, "show", "T-17", "--tenant", "acme", *as_json, *reveal)
    assert said.exit_code == 0
    assert (SECRET in said.stdout) == bool(reveal)
    for fact in ("q1", "answered", "down", "q2", "00-aa-bb-01", "finished"):
        assert fact in said.stdout
