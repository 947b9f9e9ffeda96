"""Leases in memory."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from infra.redis.leases import Lease
from topics.errors import FencedError, LeaseBusyError


class MemoryLeases:
    """Leases in dicts. `lose` takes a held thread away, as another worker would after the lease ended."""

    def __init__(self) -> None:
        self.fences: dict[str, int] = {}
        self._holders: dict[str, anyio.CancelScope] = {}
        self._lost: set[anyio.CancelScope] = set()

    @asynccontextmanager
    async def hold(self, thread: str) -> AsyncGenerator[Lease]:
        if thread in self._holders:
            raise LeaseBusyError(f"thread {thread} is held")
        self.fences[thread] = self.fences.get(thread, 0) + 1
        with anyio.CancelScope() as scope:
            self._holders[thread] = scope
            try:
                yield Lease(thread, self.fences[thread])
            finally:
                if self._holders.get(thread) is scope:
                    del self._holders[thread]
        if scope in self._lost:
            raise FencedError("the lease was lost")

    def lose(self, thread: str) -> None:
        scope = self._holders.pop(thread)
        self._lost.add(scope)
        self.fences[thread] += 1
        scope.cancel()
