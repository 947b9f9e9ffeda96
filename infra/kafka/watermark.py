"""Finished offsets of one partition -> the next position that is safe to commit. Pure."""

import heapq


class Watermark:
    """Follows the records of one assignment of one partition.

    Every offset below `next_position()` is finished or was never delivered (compaction, transaction markers leave gaps).
    Source: promise P6.
    """

    def __init__(self) -> None:
        self._pending: set[int] = set()
        self._lowest_first: list[int] = []
        self._delivered: int | None = None

    def add(self, offset: int) -> bool:
        """Take note of a delivered record. False when this assignment already delivered it."""
        if self._delivered is not None and offset < self._delivered:
            return False
        self._delivered = offset + 1
        self._pending.add(offset)
        heapq.heappush(self._lowest_first, offset)
        return True

    def reach(self, position: int) -> None:
        """Take note that no record below `position` is still to come: what lies there was delivered, or is for nobody."""
        self._delivered = max(position, self._delivered or 0)

    def finish(self, offset: int) -> None:
        """The record's outputs, or its dead letter, are acknowledged."""
        self._pending.discard(offset)

    def next_position(self) -> int | None:
        """The position to commit: the lowest unfinished record, else where delivery is. None before any."""
        while self._lowest_first and self._lowest_first[0] not in self._pending:
            heapq.heappop(self._lowest_first)
        return self._lowest_first[0] if self._lowest_first else self._delivered

    def span(self) -> int:
        """Offsets from the lowest unfinished record to the last delivered one; 0 when nothing is unfinished."""
        position = self.next_position()
        return 0 if position is None or self._delivered is None else self._delivered - position

    def unfinished(self) -> int:
        """How many delivered records are not finished."""
        return len(self._pending)
