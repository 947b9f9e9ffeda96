"""Workers whose every step is chosen: which of them goes on, and where one dies. Deterministic for a seed.

A step is a call of the registry, the held questions, the leases or the checkpointer, or a publication. A process that dies does
nothing more; its record comes again, to a new one.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver

from tests.fakes.ledger import CrashError
from tests.workers.desk import Desk
from topics.envelope import Event
from topics.errors import RetryableError
from topics.events import Payload

MAX_STEPS = 4_000


@dataclass(eq=False)
class Process:
    """One life of a worker."""

    name: str
    is_dead: bool = False


NOW: ContextVar[Process | None] = ContextVar("now", default=None)


@dataclass
class Stage:
    """Lets one worker go on at a time. `crash_at` is the step at which whoever takes it dies; 0 is never."""

    rng: random.Random
    crash_at: int = 0
    steps: int = 0
    crashed: bool = False
    waiting: dict[str, list[asyncio.Future[None]]] = field(default_factory=dict)
    moved: asyncio.Event = field(default_factory=asyncio.Event)

    async def step(self) -> None:
        process = NOW.get()
        if process is None:
            return
        turn = asyncio.get_running_loop().create_future()
        self.waiting.setdefault(process.name, []).append(turn)
        self.moved.set()
        await turn
        if process.is_dead:
            raise CrashError("already dead")
        self.steps += 1
        if self.steps == self.crash_at:
            process.is_dead = self.crashed = True
            raise CrashError(f"at step {self.steps}")

    async def run(self, workers: dict[str, Callable[[], Awaitable[None]]]) -> None:
        """Run workers until all are done."""
        tasks = {name: asyncio.ensure_future(worker()) for name, worker in sorted(workers.items())}
        try:
            while not all(task.done() for task in tasks.values()):
                await self._all_at_a_step(tasks)
                names = sorted(name for name, turns in self.waiting.items() if turns)
                if names:
                    self.waiting[self.rng.choice(names)].pop(0).set_result(None)
                assert self.steps < MAX_STEPS, "no end"
        finally:
            for task in tasks.values():
                task.cancel()
            results = await asyncio.gather(*tasks.values(), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _all_at_a_step(self, tasks: dict[str, asyncio.Future[None]]) -> None:
        """Wait until everybody who lives stands before a step."""
        while any(not task.done() and not self.waiting.get(name) for name, task in tasks.items()):
            self.moved.clear()
            running = [task for task in tasks.values() if not task.done()]
            moved = asyncio.ensure_future(self.moved.wait())
            await asyncio.wait([*running, moved], return_when=asyncio.FIRST_COMPLETED)
            moved.cancel()


@dataclass
class Stepped:
    """Whatever it wraps, each call takes a step before and a step behind."""

    inner: Any
    stage: Stage

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            await self.stage.step()
            result = await method(*args, **kwargs)
            await self.stage.step()
            return result

        return call


@dataclass
class SteppedLeases:
    inner: Any
    stage: Stage

    @asynccontextmanager
    async def hold(self, thread: str):
        await self.stage.step()
        async with self.inner.hold(thread) as lease:
            yield lease


class SteppedSaver(InMemorySaver):
    """A checkpointer whose writes are steps."""

    stage: Stage

    async def aput(self, *args: Any, **kwargs: Any) -> Any:
        await self.stage.step()
        return super().put(*args, **kwargs)

    async def aput_writes(self, *args: Any, **kwargs: Any) -> None:
        await self.stage.step()
        super().put_writes(*args, **kwargs)


@dataclass
class Partition:
    """Records that one worker gets in their order, each again until it is done."""

    name: str
    stage: Stage
    desk: Desk
    told: list[tuple[str, Payload]]

    async def deliver(self, one: Event[Any]) -> None:
        while True:
            process = Process(self.name)
            NOW.set(process)
            try:
                await self._handle(one, process)
            except (CrashError, BaseExceptionGroup):
                if not process.is_dead:
                    raise
            except RetryableError:
                with suppress(CrashError):
                    await self.stage.step()
            else:
                return

    async def _handle(self, one: Event[Any], process: Process) -> None:
        async with aclosing(self.desk.payloads(one)) as payloads:
            async for payload in payloads:
                await self.stage.step()
                self.told.append((one.id, payload))
                self.desk.told.append(payload)
                await self.stage.step()
        if process.is_dead:
            raise CrashError("died in a task of its own")
