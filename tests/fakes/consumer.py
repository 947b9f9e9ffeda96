"""A consumer group member on logs in memory, with the eager rebalances of the real client."""

import random
from collections.abc import Iterable

import anyio
import anyio.lowlevel

from infra.kafka.consumer import RebalanceListener, TopicPartition
from topics.records import RawRecord


class MemoryConsumer:
    """Serves `logs`; a new assignment goes back to the committed positions. `refuse_commits` is a share of commits refused."""

    def __init__(self, logs: dict[TopicPartition, list[RawRecord]], *, rng: random.Random | None = None) -> None:
        self.logs = logs
        self.committed: dict[TopicPartition, int] = dict.fromkeys(logs, 0)
        self.commits: list[tuple[TopicPartition, int]] = []
        self.refuse_commits = 0.0
        self.stopped = False
        self._rng = rng or random.Random(0)
        self._positions: dict[TopicPartition, int] = {}
        self._listener: RebalanceListener | None = None
        self._settled = anyio.Event()
        self._pause_s = 0.0

    async def start(self, listener: RebalanceListener) -> None:
        self._listener = listener
        await self.rebalance(self.logs)

    async def poll(self, full: set[TopicPartition]) -> dict[TopicPartition, list[RawRecord]]:
        await anyio.sleep(self._pause_s)
        # As in the real client nothing comes between taking records and handing them out, no rebalance above all.
        await self._settled.wait()
        batches = {}
        for partition in set(self._positions) - full:
            waiting = [record for record in self.logs[partition] if record.offset >= self._positions[partition]]
            if taken := waiting[: self._rng.randint(0, 7)]:
                self._positions[partition] = taken[-1].offset + 1
                batches[partition] = taken
        self._pause_s = 0.0 if batches else 0.002
        return batches

    def reached(self) -> dict[TopicPartition, int]:
        return dict(self._positions)

    async def commit(self, positions: dict[TopicPartition, int]) -> bool:
        await anyio.lowlevel.checkpoint()
        if self._rng.random() < self.refuse_commits:
            return False
        ours = {partition: position for partition, position in positions.items() if partition in self._positions}
        self.committed |= ours
        self.commits += ours.items()
        return len(ours) == len(positions)

    async def stop(self) -> None:
        self.stopped = True

    async def rebalance(self, partitions: Iterable[TopicPartition]) -> None:
        """Take everything away, then hand out `partitions`."""
        assert self._listener is not None
        self._settled = anyio.Event()
        await self._listener.on_revoked(list(self._positions))
        self._positions = {partition: self.committed[partition] for partition in partitions}
        await self._listener.on_assigned(list(self._positions))
        self._settled.set()
