"""Call-offs that processes share, in memory."""

from collections.abc import Collection, Sequence


class MemoryCallOffNotes:
    """Query ids in a set per thread."""

    def __init__(self) -> None:
        self.threads: dict[str, set[str]] = {}

    async def note(self, thread: str, query_ids: Collection[str]) -> None:
        self.threads.setdefault(thread, set()).update(query_ids)

    async def noted(self, threads: Sequence[str]) -> list[frozenset[str]]:
        return [frozenset(self.threads.get(thread, ())) for thread in threads]
