"""The tasks of units of work: made by one owner, which waits for each of them."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Never

import anyio

from infra.kafka.assignment import Work


class UnitTasks:
    """Owns a task for each unit that runs. `watch` hands on the first error; `close` ends them all and waits for them.

    They are tasks of asyncio, not of a task group: one of those costs 34 us, this one 5, and every record has one. A task each,
    and no pool of long-lived ones, so that what a handler binds to its context is gone with it.
    """

    def __init__(self) -> None:
        self._units: dict[asyncio.Task[None], Sequence[Work]] = {}
        self._error: BaseException | None = None
        self._failed = anyio.Event()
        self.closing = False

    def start(self, run: Coroutine[Any, Any, None], unit: Sequence[Work]) -> None:
        """Run a unit in a task of its own."""
        task = asyncio.get_running_loop().create_task(run)
        self._units[task] = unit
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._units[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._error = self._error or error
            self._failed.set()

    async def watch(self) -> Never:
        """Wait for the first error of any unit, for ever.

        Raises:
            HaltError: Or whatever else a unit raised; the others still run.
        """
        await self._failed.wait()
        raise self._error or RuntimeError("no error")

    async def close(self) -> None:
        """Cancel every unit and wait until all have ended; a handler that shields a step finishes it first."""
        self.closing = True
        with anyio.CancelScope(shield=True):
            while self._units:  # a batch that ends may let a record out
                for task, unit in self._units.items():
                    # A bare cancellation of a task would break into what its handler shields; that has none behind its last record.
                    next((work.scope for work in unit if work.scope is not None), task).cancel()
                await asyncio.wait(list(self._units))
