"""What a group remembers of its positions, in memory."""

from collections.abc import Iterable

from infra.positions import TopicHistory, TopicPartition
from topics.errors import OutageError


class MemoryPositions:
    """`down` is how many calls fail before it answers again."""

    def __init__(self) -> None:
        self.began: dict[str, int] = {}
        self.committed: set[TopicPartition] = set()
        self.down = 0

    async def history(self, topic: str) -> TopicHistory:
        self._answer()
        return TopicHistory(self.began.get(topic), frozenset(number for name, number in self.committed if name == topic))

    async def begin(self, topic: str, *, partitions: int) -> TopicHistory:
        self._answer()
        self.began.setdefault(topic, partitions)
        return await self.history(topic)

    async def remember(self, committed: Iterable[TopicPartition]) -> None:
        self._answer()
        self.committed |= set(committed)

    def _answer(self) -> None:
        if self.down:
            self.down -= 1
            raise OutageError("Redis cannot serve")
