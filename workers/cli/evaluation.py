"""`sluice eval`: run a dataset through the graph, score it, and hold one run against another."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final, get_args

import typer

from flows.evaluation.comparing import DEFAULT_MAX_REGRESSION, compare
from flows.evaluation.scoring import NAMES
from flows.evaluation.tasks import Mode, Task, read_tasks
from infra.clock import SystemClock
from infra.settings import Settings, load_settings
from infra.telemetry import configure_logging
from topics.errors import ConfigError, RejectedError
from workers.cli import output
from workers.cli.output import JsonOption
from workers.demo.host import hosted
from workers.evaluation import report as reports
from workers.evaluation import runs
from workers.evaluation.driver import Approver
from workers.evaluation.retail import named_dataset
from workers.evaluation.running import run_tasks
from workers.evaluation.runs import Run
from workers.evaluation.stage import open_driver
from workers.rates import read_rates

app = typer.Typer(help="Run a dataset through the agent, score it, and compare two runs.", no_args_is_help=True)

Dataset = Annotated[str, typer.Argument(help="A file of JSON lines, or retail, retail:test, retail:dev, retail:train.")]
RunFolder = Annotated[Path, typer.Argument(help="The folder of a run.")]
MODES: Final = get_args(Mode)
APPROVERS: Final = get_args(Approver)
SHOWN: Final = 20


@app.command("run")
def run_(
    dataset: Dataset,
    out: Annotated[Path, typer.Option(help="The folder of the run. One that was cut off goes on.")],
    mode: Annotated[str, typer.Option(help=f"How calls are compared: {', '.join(MODES)}; a task may say otherwise.")] = "strict",
    approver: Annotated[
        str, typer.Option(help="Whom the gate meets: one who says yes to expected calls, to all, or to none.")
    ] = "expected",
    concurrency: Annotated[int, typer.Option(min=1, max=64, help="So many tasks at once.")] = 4,
    task_timeout_s: Annotated[float, typer.Option(min=1, help="Seconds for one task; then it has failed.")] = 120.0,
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many tasks, evenly spread.")] = None,
    fail_under: Annotated[float | None, typer.Option(min=0, max=1, help="Fail when a mean is below this.")] = None,
    *,
    embedded: Annotated[
        bool, typer.Option("--embedded", help="Start servers for this run alone, instead of using those of the settings.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a dataset, score each task, and write report.json and report.html. Exit code 1 with --fail-under."""

    async def evaluate() -> None:
        configure_logging("error")
        tasks = _spread(_tasks(dataset), limit)
        chosen = _one_of(approver, APPROVERS, "--approver")
        how = _one_of(mode, MODES, "--mode")
        async with _settings(embedded=embedded) as settings, open_driver(settings, approver=chosen) as driver:
            wanted = runs.info_for(
                tasks,
                dataset=dataset,
                mode=how,
                approver=chosen,
                model=settings.model_name,
                graph_version=driver.agent.graph_version,
                now=SystemClock().now(),
            )
            run = runs.begin(out, wanted)
            await run_tasks(run, tasks, driver, concurrency=concurrency, task_timeout_s=task_timeout_s, told=_told)
        found = _write(run, reports.report_of(run))
        low = [
            name
            for name in NAMES
            if fail_under is not None and (mean := found["scores"][name]["mean"]) is not None and mean < fail_under
        ]
        _say(found, run, as_json=as_json, error=RejectedError(f"below {fail_under}: {', '.join(low)}", code="low") if low else None)

    output.run(evaluate, as_json=as_json)


@app.command("compare")
def compare_(
    old: RunFolder,
    new: RunFolder,
    max_regression: Annotated[float, typer.Option(min=0, max=1, help="By how much a mean may fall.")] = DEFAULT_MAX_REGRESSION,
    *,
    as_json: JsonOption = False,
) -> None:
    """Compare two runs task by task. Exit code 1 when a score fell by more than it may, or a task is missing."""

    async def hold() -> None:
        before, after = runs.load(old), runs.load(new)
        found = compare(before.scores(exceptions=False), after.scores(exceptions=False), max_regression=max_regression)
        if not before.results.keys() & after.results.keys():
            raise ConfigError(f"{old} and {new} have no task in common")
        problems = [f"{name} fell by more than {max_regression}" for name in found.fallen]
        problems += [f"{len(found.missing)} tasks of the old run are missing"] if found.missing else []
        error = RejectedError("; ".join(problems), code="regression") if problems else None
        plain: dict[str, Any] = {**reports.plain_comparison(found), "run_differently": runs.unlike(before.info, after.info)}
        if as_json and error:
            output.fail_with(plain, error)
        elif as_json:
            output.print_json(plain)
        else:
            rows = [
                (name, *(_share(one[side]) for side in ("old", "new")), one["tasks"], len(one["worse"]), len(one["better"]))
                for name, one in plain["scores"].items()
            ]
            output.print_table(("score", "old", "new", "tasks", "worse", "better"), rows)
            for name, (was, now) in plain["run_differently"].items():
                output.print_plain(f"run differently: {name} was {was}, is {now}", style="yellow")
            for name in NAMES:
                if worse := plain["scores"][name]["worse"]:
                    output.print_plain(f"worse in {name}: {', '.join(worse[:SHOWN])}{' ...' if len(worse) > SHOWN else ''}")
        if error:
            raise error

    output.run(hold, as_json=as_json)


@app.command("report")
def report_(
    folder: RunFolder,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's rates.")] = None,
    *,
    rates: Annotated[
        bool, typer.Option("--rates", help="Add what people did with proposals, from the topics of the cluster.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a run's report.json and report.html again, and show what it came to."""

    async def show() -> None:
        run = runs.load(folder)
        known = await read_rates(load_settings(), tenant=tenant) if rates else ()
        _say(_write(run, reports.report_of(run, rates=known)), run, as_json=as_json, error=None)

    output.run(show, as_json=as_json)


@app.command("export")
def export_(
    dataset: Dataset,
    out: Annotated[Path, typer.Option(help="A file that is not there yet.")],
    *,
    as_json: JsonOption = False,
) -> None:
    """Write a dataset as JSON lines, to see what one looks like or to change it."""

    async def write() -> None:
        tasks = _tasks(dataset)
        try:
            with out.open("x", encoding="utf-8") as file:
                file.writelines(f"{task.model_dump_json(exclude_none=True)}\n" for task in tasks)
        except OSError as error:
            raise ConfigError(f"{out} cannot be written: {error.strerror}") from error
        told = {"tasks": len(tasks), "file": str(out)}
        output.print_json(told) if as_json else output.print_plain(f"{len(tasks)} tasks in {out}")

    output.run(write, as_json=as_json)


@asynccontextmanager
async def _settings(*, embedded: bool) -> AsyncGenerator[Settings]:
    if not embedded:
        yield load_settings()
        return
    with TemporaryDirectory(prefix="sluice-eval-", ignore_cleanup_errors=True) as folder:
        async with hosted(Path(folder)) as host:
            yield host.settings


def _tasks(dataset: str) -> tuple[Task, ...]:
    named = named_dataset(dataset)
    if named is not None:
        return named
    try:
        # Not `splitlines`: it also cuts at U+2028 and the like, which may stand in a JSON string as they are.
        return read_tasks(Path(dataset).read_text(encoding="utf-8").split("\n"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{dataset} cannot be read ({type(error).__name__})") from error


def _spread(tasks: Sequence[Task], limit: int | None) -> tuple[Task, ...]:
    if limit is None or limit >= len(tasks):
        return tuple(tasks)
    return tuple(tasks[number * len(tasks) // limit] for number in range(limit))


def _one_of(word: str, words: Sequence[Any], option: str) -> Any:
    if word not in words:
        raise ConfigError(f"{option} wants one of: {', '.join(words)}")
    return word


def _told(done: int, count: int) -> None:
    """Say how far it is: every tenth of the way, on standard error, so that `--json` stays one value."""
    if done in {0, count} or done * 10 // count != (done - 1) * 10 // count:
        output.errors.print(f"{done} of {count} tasks", style="dim")


def _write(run: Run, report: dict[str, Any]) -> dict[str, Any]:
    try:
        (run.folder / reports.REPORT_FILE).write_text(json.dumps(report, indent=2, ensure_ascii=False), encoding="utf-8")
        (run.folder / reports.PAGE_FILE).write_text(reports.page_of(report), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{run.folder} cannot be written: {error.strerror}") from error
    return report


def _say(report: dict[str, Any], run: Run, *, as_json: bool, error: RejectedError | None) -> None:
    facts = {key: value for key, value in report.items() if key != "results"} | {"folder": str(run.folder)}
    if as_json and error:
        output.fail_with(facts, error)
    elif as_json:
        output.print_json(facts)
    else:
        rows = [(name, one["tasks"], _share(one["mean"])) for name, one in report["scores"].items()]
        output.print_table(("score", "tasks", "mean"), rows)
        wrong = [one for one in report["results"] if one["differences"]]
        for one in wrong[:SHOWN]:
            output.print_plain(f"{one['task_id']}: {'; '.join(one['differences'])}")
        output.print_plain(f"{report['right']} of {report['tasks']} tasks are right; more in {run.folder / reports.PAGE_FILE}")
    if error:
        raise error


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
