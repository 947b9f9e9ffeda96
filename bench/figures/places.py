"""Every place where a tenant's words turn up once its questions were answered, and whose words are found there."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from anyio import to_thread
from langchain_core.messages import AIMessage, ToolMessage
from typer.testing import CliRunner

from bench.figures.marks import MARK_WORD, Tally
from bench.figures.stored import owner_of, stored_texts
from bench.figures.streams import Heard
from flows.agent.state import ThreadRef
from flows.evaluation.tasks import Task
from infra.clock import SystemClock
from infra.redis.checkpointer import HardenedRedisSaver
from infra.settings import Settings
from topics.events import AnswerCompleted
from workers.cli import threads
from workers.evaluation import report, runs
from workers.evaluation.running import run_tasks
from workers.evaluation.stage import open_driver

OWNED: Final = ("stream", "answer", "citations", "tools", "examples", "redis", "threads")
"""Places where a tenant's own words must be found."""
NOBODYS: Final = ("evaluation", "logs")
"""Places where no words of articles may be."""
LEAKING: Final = (*OWNED, "evaluation")
"""Places where a search without guards is seen."""
TASK_TIMEOUT_S: Final = 120.0


def look_at_answer(tally: Tally, heard: Heard, tenant: str, query_id: str) -> None:
    """What a reader of the topic got, text of void attempts included; a mark may be cut between two deltas."""
    tally.look("stream", tenant, heard.joined_all(query_id))
    tally.look("answer", tenant, heard.completed(query_id) or "")
    ended = [one for one in heard.payloads[query_id] if isinstance(one, AnswerCompleted)]
    for citation in (citation for one in ended for citation in one.citations):
        tally.look("citations", tenant, citation.model_dump_json())


async def look_at_tools(tally: Tally, saver: HardenedRedisSaver, thread: ThreadRef) -> None:
    """What a thread's model called, and what it was told."""
    saved = await saver.aget_tuple({"configurable": {"thread_id": thread.checkpoint_id, "checkpoint_ns": ""}})
    for message in saved.checkpoint["channel_values"]["messages"] if saved else ():
        if isinstance(message, ToolMessage):
            tally.look("tools", thread.tenant, message.text)
        if isinstance(message, AIMessage):
            tally.look("tools", thread.tenant, str(message.tool_calls))


async def look_at_thread(tally: Tally, data_dir: Path, thread: ThreadRef) -> None:
    """What `sluice threads show --reveal` prints."""

    def show() -> str:
        arguments = ["show", thread.thread_id, "--tenant", thread.tenant, "--reveal"]
        return CliRunner().invoke(threads.app, arguments, env={"SLUICE_DATA_DIR": str(data_dir)}, catch_exceptions=False).output

    tally.look("threads", thread.tenant, await to_thread.run_sync(show))


async def look_at_redis(tally: Tally, redis: Any, owners: Mapping[str, str]) -> None:
    """Every key and value; `owners` as for `owner_of`."""
    async for key, text in stored_texts(redis):
        tally.look("redis", owner_of(key, owners), text)


async def look_at_evaluation(tally: Tally, settings: Settings, texts: Sequence[str]) -> None:
    """Evaluate questions of tenants without articles: nobody's words may be in an answer, or on the page.

    The page shows no answers, so it says of each whether the word is in it that all marks begin with.
    """
    tasks = [Task(task_id=f"q{number}", messages=(text,), outputs=(MARK_WORD,)) for number, text in enumerate(texts)]
    about = runs.info_for(
        tasks,
        dataset="questions of tenants without articles",
        mode="strict",
        approver="none",
        model=settings.model_name,
        graph_version="",
        now=SystemClock().now(),
    )
    with TemporaryDirectory(prefix="sluice-bench-", ignore_cleanup_errors=True) as folder:
        run = runs.begin(Path(folder), about)
        async with open_driver(settings, approver="none") as driver:
            await run_tasks(run, tasks, driver, concurrency=2, task_timeout_s=TASK_TIMEOUT_S, told=lambda _done, _all: None)
        stored = (Path(folder) / runs.RESULTS_FILE).read_text()
    said = sum(bool(one.scores["answer"]) for one in run.results.values())
    tally.foreign["evaluation"] += said
    for text in (stored, report.page_of(report.report_of(run))):
        tally.look("evaluation", None, text)


def look_at_logs(tally: Tally, data_dir: Path) -> None:
    """Logs of all processes, servers included."""
    for log in (data_dir / "logs").iterdir():
        tally.look("logs", None, log.read_text(errors="replace"))
