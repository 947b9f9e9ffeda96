"""Held questions in memory."""

from infra.redis.held import HeldQuery, Waiting


class MemoryHeldQueries:
    """Questions in a dict per thread; a dict keeps their order."""

    def __init__(self) -> None:
        self.threads: dict[str, dict[str, HeldQuery]] = {}

    async def hold(self, thread: str, held: Waiting) -> None:
        self.threads.setdefault(thread, {}).setdefault(held.query_id, HeldQuery(held.query_id, held.query))

    async def first(self, thread: str) -> HeldQuery | None:
        return next(iter(self.threads.get(thread, {}).values()), None)

    async def drop(self, thread: str, query_id: str) -> bool:
        return self.threads.get(thread, {}).pop(query_id, None) is not None
