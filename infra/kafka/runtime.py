"""Everything between Kafka and a handler: poll, decode, claim, lane, slot, handle, publish, settle, watermark, commit.

Work carries its assignment; when that has ended, it neither publishes nor commits. After an eager rebalance even a kept partition
is a new assignment: its records come again, and the inbox tells which are done.
Source: DESIGN section 3; `docs/decisions/0003-runtime.md`.
"""

import random
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import structlog

from infra.claims import Inbox
from infra.clock import SystemClock
from infra.kafka.assignment import Assignment
from infra.kafka.board import Board, RuntimeConfig, TopicPartition
from infra.kafka.consumer import Consumer
from infra.kafka.dispatch import Dispatcher
from infra.kafka.execution import Executor
from infra.kafka.intake import Intake
from infra.kafka.routes import Route
from infra.kafka.settlement import DeadLetters, Settlement
from topics.catalogue import Catalogue
from topics.errors import HaltError

CANCEL_WAIT_S = 5.0

_log: Any = structlog.get_logger("sluice.runtime")


class Runtime:
    """One member of a consumer group, with its routes and bounds."""

    def __init__(
        self,
        *,
        group: str,
        owner: str,
        routes: Sequence[Route],
        catalogue: Catalogue,
        consumer: Consumer,
        inbox: Inbox,
        executor: Executor,
        dead_letters: DeadLetters,
        clock: SystemClock,
        config: RuntimeConfig,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.board = Board(group=group, routes=routes, catalogue=catalogue, clock=clock, config=config, jitter=jitter)
        self._owner = owner
        self._consumer = consumer
        self._inbox = inbox
        self._executor = executor
        self._dead_letters = dead_letters
        self._settlement: Settlement | None = None
        self._dispatcher: Dispatcher | None = None
        self._epoch = 0

    async def run(self) -> None:
        """Work until `request_stop`, then drain, commit, leave the group and return.

        Raises:
            HaltError: Something only a person can mend. Nothing more was committed.
        """
        board = self.board
        halt: HaltError | None = None
        try:
            async with anyio.create_task_group() as tasks:
                self._settlement = settlement = Settlement(
                    board, inbox=self._inbox, consumer=self._consumer, dead_letters=self._dead_letters, tasks=tasks
                )
                self._dispatcher = dispatcher = Dispatcher(
                    board, inbox=self._inbox, executor=self._executor, ends=settlement, owner=self._owner, tasks=tasks
                )
                intake = Intake(board, consumer=self._consumer, inbox=self._inbox)
                async with self._membership():
                    for loop in (intake.run, dispatcher.run, settlement.run, settlement.commit_regularly):
                        tasks.start_soon(loop)
                    await board.stopping.wait()
                    await self._let_go(list(board.assignments.values()), within_s=board.config.drain_s)
                    tasks.cancel_scope.cancel()
        except* HaltError as group:
            halt = _first(group)
        if halt is not None:  # raised here: before Python 3.11.4 an `except*` block wraps what it raises in a group
            raise halt

    def request_stop(self) -> None:
        """Take no more work, and drain."""
        self.board.stopping.set()
        self.board.notify()

    def snapshot(self) -> dict[str, Any]:
        """Figures for health and metrics."""
        board = self.board
        return {
            "group": board.group,
            "partitions": len(board.assignments),
            "running": self._dispatcher.running if self._dispatcher else 0,
            "in_flight": len(board.in_flight),
            "queued": sum(len(lanes) for lanes in board.lanes.values()),
            "outage": None if board.gate.is_open else board.gate.reason,
        }

    async def on_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Drain first, fence second."""
        self.board.rebalance_began()
        held = [one for partition in partitions if (one := self.board.assignments.get(partition))]
        await self._let_go(held, within_s=self.board.config.revoke_drain_s)

    async def on_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Begin a new assignment of each partition. Whatever is left of an earlier one has ended."""
        self._epoch += 1
        leftovers = list(self.board.assignments.values())
        self._drop_waiting(leftovers)
        self._fence(leftovers)
        self.board.assignments = {(topic, number): Assignment(topic, number, self._epoch) for topic, number in partitions}
        _log.info("partitions_assigned", group=self.board.group, count=len(self.board.assignments), epoch=self._epoch)
        self.board.rebalance_ended()
        self.board.notify()

    async def _let_go(self, ending: list[Assignment], *, within_s: float) -> None:
        """Finish what runs, within a bound; commit; then nothing of these assignments publishes or commits any more."""
        self._drop_waiting(ending)
        try:
            await self._idle(ending, within_s=within_s)
            if self._settlement is not None:
                await self._settlement.commit(ending)
        finally:  # whatever comes of the drain: the partitions go, and the client only logs what a listener raises
            self._fence(ending)
        await self._idle(ending, within_s=CANCEL_WAIT_S)

    def _drop_waiting(self, ending: Iterable[Assignment]) -> None:
        """Nothing more of these assignments begins; what waits is delivered to their next owner."""
        for one in ending:
            one.draining = True
        for lanes in self.board.lanes.values():
            lanes.drop(lambda work: work.assignment.draining)

    def _fence(self, ended: Sequence[Assignment]) -> None:
        """Nothing of these assignments publishes or commits any more."""
        assignments = self.board.assignments
        for one in ended:
            one.live = False
            if assignments.get((one.topic, one.partition)) is one:  # and not the next one of the same partition
                del assignments[one.topic, one.partition]
        for work in self.board.busy(ended):
            if work.scope is not None:
                work.scope.cancel()

    async def _idle(self, ending: list[Assignment], *, within_s: float) -> None:
        with anyio.move_on_after(within_s):
            while self.board.busy(ending):
                await self.board.wake.wait()

    @asynccontextmanager
    async def _membership(self) -> AsyncGenerator[None]:
        await self._consumer.start(self)
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await self._consumer.stop()


def _first(group: BaseExceptionGroup[HaltError]) -> HaltError:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
