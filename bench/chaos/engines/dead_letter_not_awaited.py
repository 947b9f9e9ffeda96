"""Control: ours, except that nobody waits for the dead letter. Where its topic is missing the record is gone (I1, I13)."""

from contextlib import suppress
from dataclasses import dataclass

import anyio
from anyio.abc import TaskGroup

from bench.chaos import ours
from bench.chaos.perform import Perform
from bench.chaos.spec import Spec
from infra.kafka.dead_letter import Death
from infra.kafka.settlement import DeadLetters
from topics.errors import OutageError
from topics.records import RawRecord


async def run(spec: Spec, perform: Perform) -> None:
    """Work as ours does, with that one difference."""
    async with anyio.create_task_group() as tasks:
        await ours.run(spec, perform, ours.Guards(dead_letters=lambda inner: FiredLetters(inner, tasks)))
        tasks.cancel_scope.cancel()


@dataclass(frozen=True, slots=True)
class FiredLetters:
    """Dead letters that are sent, and that is all."""

    inner: DeadLetters
    tasks: TaskGroup

    async def bury(self, record: RawRecord, death: Death) -> None:
        """Send a dead letter and do not wait for it."""
        self.tasks.start_soon(self._fire, record, death)

    async def _fire(self, record: RawRecord, death: Death) -> None:
        with suppress(OutageError):
            await self.inner.bury(record, death)
