"""Control: ours, except that it commits how far it has read, and not how far it is done. A SIGKILL loses what ran (I1, I4).

This is what a bare `commit()` of the client does.
"""

from dataclasses import dataclass, field
from typing import Any, cast

from bench.chaos import ours
from bench.chaos.perform import Perform
from bench.chaos.spec import Spec
from infra.kafka.consumer import Consumer, TopicPartition
from topics.records import RawRecord


async def run(spec: Spec, perform: Perform) -> None:
    """Work as ours does, with that one difference."""
    await ours.run(spec, perform, ours.Guards(consumer=lambda inner: cast("Consumer", FetchedPositions(inner))))


@dataclass
class FetchedPositions:
    """A consumer that puts what it has handed out in the place of every position."""

    inner: Consumer
    _handed_out: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])

    def __getattr__(self, name: str) -> Any:
        """Everything else is as it was."""
        return getattr(self.inner, name)

    async def poll(self, full: set[TopicPartition]) -> dict[TopicPartition, list[RawRecord]]:
        """The next records."""
        batches = await self.inner.poll(full)
        self._handed_out |= {partition: records[-1].offset + 1 for partition, records in batches.items() if records}
        return batches

    async def commit(self, positions: dict[TopicPartition, int]) -> bool:
        """Commit too much."""
        return await self.inner.commit({partition: self._handed_out.get(partition, at) for partition, at in positions.items()})
