"""What becomes of a record after its handler: done, later, or dead; then the watermark and the commit."""

from collections.abc import Iterable
from typing import Any, Literal, Protocol

import anyio
import structlog
from anyio.abc import TaskGroup

from infra.claims import Failure, Inbox
from infra.kafka import retry
from infra.kafka.assignment import Assignment, Work
from infra.kafka.board import Board
from infra.kafka.consumer import Consumer
from infra.kafka.dead_letter import Death
from infra.kafka.execution import AssignmentEndedError
from infra.kafka.figures import Durations
from infra.kafka.flood import FloodGuard
from topics.errors import FencedError, OutageError, RateLimitedError, SluiceError
from topics.records import RawRecord

FLOOD_PAUSE_S = 30.0

_log: Any = structlog.get_logger("sluice.runtime")


class DeadLetters(Protocol):
    """Where records go that cannot be done."""

    async def bury(self, record: RawRecord, death: Death) -> None:
        """Write a dead letter and wait for its acknowledgement.

        Raises:
            OutageError: It was not acknowledged.
        """
        ...


class Settlement:
    """Decides, writes claims in batches, and commits the watermark."""

    def __init__(self, board: Board, *, inbox: Inbox, consumer: Consumer, dead_letters: DeadLetters, tasks: TaskGroup) -> None:
        self._board = board
        self._inbox = inbox
        self._consumer = consumer
        self._dead_letters = dead_letters
        self._tasks = tasks
        self._flood = FloodGuard()
        self._unwritten: list[tuple[Work, Literal["done", "dead"]]] = []

    async def conclude(self, work: Work, error: Exception | None) -> None:
        """The handler ended, well or with an error.

        Raises:
            HaltError: The error was one; nothing more is committed.
        """
        self._count(work, error)
        if not work.assignment.live or isinstance(error, AssignmentEndedError):
            await self.hand_back(work)
        elif error is None:
            self._done(work)
        else:
            await self._failed(work, error)

    async def hand_back(self, work: Work, *, delay_s: float = 0.0) -> None:
        """It was not tried: take the start back, so that it counts as no crash, and let its lane wait."""
        self._board.counters.handed_back += 1
        self._board.gate.failed()  # a trial that told nothing is over, or nothing would ever be tried again
        try:
            await self._inbox.release([work.claim_id])
        except OutageError:
            work.owed += 1
            _log.warning("start_not_taken_back", position=work.record.position)
        self._board.requeue(work, delay_s=delay_s)

    def skip(self, work: Work) -> None:
        """Somebody settled it between our look and our start: nothing to do, and its offset counts."""
        self._board.counters.skipped += 1
        self._board.gate.failed()
        self._board.lanes_of(work).release(work.lane)
        self._board.finish(work)

    def _done(self, work: Work) -> None:
        board = self._board
        board.open_gate()
        board.counters.handled += 1
        self._flood.ended(dead=False)
        self._settle(work, "done")

    async def _failed(self, work: Work, error: Exception) -> None:
        board = self._board
        policy, limited_s = board.config.retry, self._limited_s(work, error)
        step = retry.next_step(error, failures=work.failures, policy=policy, jitter=board.jitter(), limited_s=limited_s)
        match step:
            case retry.Halt():
                raise error
            case retry.Pause(delay_s):
                board.shut_gate(error, delay_s)
                await self.hand_back(work)
            case retry.RetryAfter(delay_s, spends_attempt=False):
                board.gate.failed()
                await self.hand_back(work, delay_s=delay_s)
            case retry.RetryAfter(delay_s):
                board.gate.failed()
                self._report(work, error, "retry")
                await self._retry_later(work, delay_s)
            case retry.DeadLetter(code, disposition):
                board.gate.failed()
                self._report(work, error, code)
                self._tasks.start_soon(self._bury, work, self._death(work, error, code, disposition))

    def _limited_s(self, work: Work, error: Exception) -> float:
        """For how long a provider has been limiting this record's rate."""
        if not isinstance(error, RateLimitedError):
            return 0.0
        now_s = self._board.clock.monotonic_s()
        if work.limited_since_s is None:
            work.limited_since_s = now_s
        return now_s - work.limited_since_s

    async def _retry_later(self, work: Work, delay_s: float) -> None:
        board = self._board
        now_ms = board.now_ms()
        work.failures += 1
        work.first_failed_at_ms = work.first_failed_at_ms or now_ms
        board.counters.retried += 1
        failure = Failure(work.claim_id, due_at_ms=now_ms + int(delay_s * 1000), failed_at_ms=now_ms)
        await board.until_answered(lambda: self._inbox.fail([failure]))
        work.claim = work.claim.with_failure(failure)
        board.requeue(work, delay_s=delay_s)

    def _death(self, work: Work, error: Exception, code: str, disposition: str) -> Death:
        now_ms = self._board.now_ms()
        return Death(
            group=self._board.group,
            code=code,
            disposition=disposition,
            stage="handler" if work.event else "decode",
            # The text of a bug may quote a payload; its type does not.
            message=str(error) if isinstance(error, SluiceError) else "",
            exception=type(error).__name__,
            delivery_count=max(work.starts, 1),
            first_failed_at_ms=work.first_failed_at_ms or now_ms,
            last_failed_at_ms=now_ms,
            tenant=work.tenant,
        )

    async def _bury(self, work: Work, death: Death) -> None:
        """Write the dead letter, however long that takes: the offset waits until the broker has it (P6, P10)."""
        board = self._board
        waited = False
        while work.assignment.live:
            try:
                await self._dead_letters.bury(work.record, death)
            except OutageError as error:
                waited = True
                _log.error("dead_letter_not_acknowledged", position=work.record.position, why=str(error))
                board.shut_gate(error, board.config.retry.outage_wait_s)
                await anyio.sleep(1.0 + board.jitter())
                continue
            if waited:
                board.open_gate()
            board.counters.dead += 1
            by = work.record.topic, death.code
            board.counters.dead_by[by] = board.counters.dead_by.get(by, 0) + 1
            if self._flood.ended(dead=True):
                board.shut_gate(OutageError("a flood of dead letters"), FLOOD_PAUSE_S)
            self._settle(work, "dead")
            return
        await self.hand_back(work)

    def _settle(self, work: Work, state: Literal["done", "dead"]) -> None:
        self._unwritten.append((work, state))
        self._board.unwritten += 1
        self._board.notify()

    async def run(self) -> None:
        """Write settled claims, as many at once as there are, and let their offsets count."""
        board = self._board
        while True:
            wake = board.wake
            if not self._unwritten:
                await wake.wait()
                continue
            written, self._unwritten = self._unwritten, []
            states: list[tuple[str, Literal["done", "dead"]]] = [(work.claim_id, state) for work, state in written]
            await board.until_answered(lambda states=states: self._inbox.settle(states))
            for work, _ in written:
                # Only now may its lane go on: the next record may be this one again, and must find the claim settled.
                board.lanes_of(work).release(work.lane)
                board.finish(work)
            board.unwritten -= len(written)
            board.counters.settled += len(written)
            board.notify()

    async def commit_regularly(self) -> None:
        """Commit every moved watermark, for ever."""
        while True:
            await anyio.sleep(self._board.config.commit_interval_s)
            await self.commit(self._board.assignments.values())

    async def commit(self, held: Iterable[Assignment]) -> None:
        """Commit explicit positions of live assignments. A refusal means that somebody else owns them: nothing to mend."""
        moved = [(one, position) for one in list(held) if one.live and (position := one.position_to_commit()) is not None]
        if not moved:
            self._board.committed_at_s = self._board.clock.monotonic_s()
            return
        try:
            accepted = await self._consumer.commit({(one.topic, one.partition): position for one, position in moved})
        except OutageError as error:
            _log.warning("commit_failed", group=self._board.group, why=str(error))
            return
        if accepted:
            self._board.counters.commits += 1
            self._board.committed_at_s = self._board.clock.monotonic_s()
            for one, position in moved:
                one.committed = position

    def _count(self, work: Work, error: Exception | None) -> None:
        board = self._board
        board.counters.lease_losses += isinstance(error, FencedError)
        if work.event is None:
            return  # nobody handled it
        topic = work.record.topic
        durations = board.counters.handler_s.get(topic)
        if durations is None:
            durations = board.counters.handler_s[topic] = Durations()
        durations.add(board.in_flight.age_s(work))

    def _report(self, work: Work, error: Exception, fate: str) -> None:
        facts = {"group": self._board.group, "position": work.record.position, "tenant": work.tenant, "fate": fate}
        if isinstance(error, SluiceError):
            _log.warning("record_failed", error=type(error).__name__, why=str(error), **facts)
        else:
            _log.error("record_failed", error=type(error).__name__, exc_info=error, **facts)
