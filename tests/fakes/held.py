"""Held questions in memory."""

from dataclasses import replace

from infra.redis.held import HeldQuery, Waiting


class MemoryHeldQueries:
    """Questions in a dict per thread; a dict keeps their order."""

    def __init__(self) -> None:
        self.threads: dict[str, dict[str, HeldQuery]] = {}

    async def hold(self, thread: str, held: Waiting) -> None:
        self.threads.setdefault(thread, {}).setdefault(held.query_id, HeldQuery(held.query_id, held.query))

    async def first(self, thread: str) -> HeldQuery | None:
        return next(iter(self.threads.get(thread, {}).values()), None)

    async def all(self, thread: str) -> list[HeldQuery]:
        return list(self.threads.get(thread, {}).values())

    async def call_off(self, thread: str, query_id: str) -> bool:
        waiting = self.threads.get(thread, {})
        if query_id in waiting:
            waiting[query_id] = replace(waiting[query_id], is_called_off=True)
        return query_id in waiting

    async def drop(self, thread: str, query_id: str) -> bool:
        return self.threads.get(thread, {}).pop(query_id, None) is not None
