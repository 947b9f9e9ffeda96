"""The handler that all engines run, and the watch that it carries."""

import asyncio
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio

from bench.gauges import rss_mb
from bench.rivals.cell import Result


@dataclass(slots=True)
class Watch:
    """Counts handlers that ended, from the start of the first until `records` have, or `within_s` is over."""

    records: int
    handler_s: float
    within_s: float
    finished: int = 0
    overlaps: int = 0
    began_s: float = 0.0
    used_s: float = 0.0
    running: set[str] = field(default_factory=set[str])
    begun: anyio.Event = field(default_factory=anyio.Event)
    enough: anyio.Event = field(default_factory=anyio.Event)
    ended_s: float = 0.0

    async def handle(self, key: str) -> None:
        """What every engine does with every record: wait as long as a model would, and note it."""
        with self._noted(key):
            if self.handler_s:
                await asyncio.sleep(self.handler_s)

    @contextmanager
    def _noted(self, key: str) -> Generator[None]:
        if not self.began_s:
            self.began_s, self.used_s = time.monotonic(), -time.process_time()
            self.begun.set()
        self.overlaps += key in self.running
        self.running.add(key)
        yield
        self.running.discard(key)
        self.finished += 1
        if self.finished == self.records:
            self._stop()

    def _stop(self) -> None:
        if not self.enough.is_set():
            self.ended_s = time.monotonic()
            self.used_s += time.process_time()
            self.enough.set()

    async def measured(self) -> Result:
        """Wait for the first start, then for the end."""
        await self.begun.wait()
        with anyio.move_on_after(self.within_s):
            await self.enough.wait()
        self._stop()
        return Result(
            min(self.finished, self.records), self.ended_s - self.began_s, self.used_s, rss_mb(os.getpid()), self.overlaps
        )
