"""Drive the tasks of a run, some at once, and keep what became of each."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import anyio

from flows.evaluation import scoring
from flows.evaluation.observation import Observation
from flows.evaluation.tasks import Mode, Task
from topics.errors import HaltError, SluiceError
from workers.evaluation.runs import Result, Run


class Drives(Protocol):
    """What runs one task."""

    async def drive(self, task: Task, *, tenant: str) -> Observation:
        """Run a task to its end.

        Raises:
            SluiceError: It came to no end. The next try continues it.
        """
        ...

    async def forget(self, task: Task, *, tenant: str) -> None:
        """Let go of the task's thread."""
        ...


async def run_tasks(
    run: Run,
    tasks: Sequence[Task],
    driver: Drives,
    *,
    concurrency: int,
    task_timeout_s: float,
    told: Callable[[int, int], None],
) -> None:
    """Run every task that has no result yet; those that came to no end in an earlier try are tried again.

    A task that does not end is a result with its code and scores of 0: it is never left out.

    Args:
        told: Is given how many of how many are done, at first and after each.

    Raises:
        HaltError: Something that no other task would fare better with. What is done is kept.
    """
    left = [task for task in tasks if task.task_id not in run.results or run.results[task.task_id].error is not None]
    done, places = len(tasks) - len(left), anyio.Semaphore(concurrency)

    async def one(task: Task) -> None:
        nonlocal done
        tenant = f"eval-{run.info.run_id}-{task.task_id}"
        async with places:
            result = await _result(task, driver, tenant=tenant, mode=run.info.mode, timeout_s=task_timeout_s)
            run.add(result)
            if result.error is None:
                await driver.forget(task, tenant=tenant)
        done += 1
        told(done, len(tasks))

    told(done, len(tasks))
    halted: HaltError | None = None
    try:
        async with anyio.create_task_group() as group:
            for task in left:
                group.start_soon(one, task)
    except* HaltError as errors:
        halted = _first(errors)
    if halted is not None:
        raise halted


async def _result(task: Task, driver: Drives, *, tenant: str, mode: Mode, timeout_s: float) -> Result:
    begun_s = anyio.current_time()
    about: dict[str, Any] = {"task_id": task.task_id, "expected_route": task.route, "exception": task.exception}
    try:
        with anyio.fail_after(timeout_s):
            seen = await driver.drive(task, tenant=tenant)
    except HaltError:
        raise
    except Exception as error:  # noqa: BLE001 -- one task's bug is that task's result, as a record's is in the runtime
        code = _code_of(error)
        scores = scoring.failed(task).as_dict()
        return Result(**about, scores=scores, error=code, differences=(f"it did not end: {code}",), seconds=_since(begun_s))
    judged = scoring.judge(task, seen, mode=mode)
    return Result(
        **about,
        scores=judged.scores.as_dict(),
        calls=seen.calls,
        route=seen.route,
        differences=judged.differences,
        asked=seen.asked,
        errors=seen.errors,
        seconds=_since(begun_s),
    )


def _code_of(error: Exception) -> str:
    if isinstance(error, SluiceError):
        return error.reason_code
    return "timed_out" if isinstance(error, TimeoutError) else f"unexpected {type(error).__name__}"


def _since(begun_s: float) -> float:
    return round(anyio.current_time() - begun_s, 3)


def _first(errors: BaseExceptionGroup[HaltError]) -> HaltError:
    found = errors.exceptions[0]
    return found if isinstance(found, HaltError) else _first(found)
