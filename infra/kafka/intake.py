"""Poll, decode, claim: from the broker into lanes. One task, which no handler ever blocks."""

from collections.abc import Sequence
from typing import Any

import structlog

from infra.claims import Claim, Inbox
from infra.kafka.assignment import Assignment, Work
from infra.kafka.board import Board, TopicPartition
from infra.kafka.consumer import Consumer
from topics.envelope import decode
from topics.errors import OutageError, RejectedError
from topics.records import RawRecord

_log: Any = structlog.get_logger("sluice.runtime")


class Intake:
    """Takes records of partitions that have room."""

    def __init__(self, board: Board, *, consumer: Consumer, inbox: Inbox) -> None:
        self._board = board
        self._consumer = consumer
        self._inbox = inbox

    async def run(self) -> None:
        """Poll until the runtime stops."""
        board = self._board
        while not board.stopping.is_set():
            full = {partition for partition, held in board.assignments.items() if self._is_full(held)}
            try:
                batches = await self._consumer.poll(full)
            except OutageError as error:
                await board.sit_out(error)
                continue
            board.counters.polls += 1
            works = [work for partition, records in batches.items() for work in self._admit(partition, records)]
            self._pass_gaps()
            if works:
                await self._claim(works)
                board.notify()

    def _is_full(self, held: Assignment) -> bool:
        config = self._board.config
        return (
            held.buffered >= config.max_buffered_records
            or held.buffered_bytes >= config.max_buffered_bytes
            or held.watermark.span() >= config.max_span
        )

    def _admit(self, partition: TopicPartition, records: Sequence[RawRecord]) -> list[Work]:
        held = self._board.assignments.get(partition)
        if held is None or held.draining:
            return []  # fetched for an assignment that has ended: its owner gets it delivered
        admitted = [self._understand(record, held) for record in records if held.watermark.add(record.offset)]
        now_s = self._board.clock.monotonic_s()
        held.admitted_at_s.update((work.record.offset, now_s) for work in admitted)
        held.buffered += len(admitted)
        held.buffered_bytes += sum(work.size_bytes for work in admitted)
        counters = self._board.counters
        counters.admitted += len(admitted)
        counters.peak_buffered = max(counters.peak_buffered, held.buffered)
        return admitted

    def _pass_gaps(self) -> None:
        """A log may end in what no client is given, as transactions leave it: without this it would never count as read."""
        for partition, position in self._consumer.reached().items():
            held = self._board.assignments.get(partition)
            if held is not None and not held.draining:
                held.watermark.reach(position)

    def _understand(self, record: RawRecord, held: Assignment) -> Work:
        try:
            return Work(record, held, decode(record, catalogue=self._board.catalogue))
        except RejectedError as error:
            return Work(record, held, None, refusal=error)
        except Exception as error:  # noqa: BLE001 -- a fault of ours must not stop the partition, now and at every restart
            _log.error("record_not_read", position=record.position, error=type(error).__name__)
            return Work(record, held, None, refusal=RejectedError("a fault of ours while it was read", code="unexpected"))

    async def _claim(self, works: Sequence[Work]) -> None:
        board = self._board
        claims = await board.until_answered(lambda: self._inbox.look([work.claim_id for work in works]))
        for work, claim in zip(works, claims, strict=True):
            if work.assignment.draining:
                continue
            if claim.state in {"done", "dead"}:
                board.counters.skipped += 1
                board.finish(work)
            else:
                self._queue(work, claim)

    def _queue(self, work: Work, claim: Claim) -> None:
        work.claim = claim
        work.failures = claim.failures
        work.first_failed_at_ms = claim.first_failed_at_ms
        due_at_s = None
        if claim.due_at_ms is not None:
            left_s = (claim.due_at_ms - self._board.now_ms()) / 1000
            # Whoever wrote it may have had another clock: no retry waits for longer than the longest one.
            due_at_s = self._board.clock.monotonic_s() + min(max(0.0, left_s), self._board.config.retry.cap_s)
        self._board.lanes_of(work).push(work.lane, work, tenant=work.tenant, due_at_s=due_at_s)
        self._tell(work)

    def _tell(self, work: Work) -> None:
        """Let the route know at once what will be handled in its turn."""
        route = self._board.routes[self._board.catalogue.spec(work.record.topic).name]
        if route.on_arrival is None or work.event is None:
            return
        try:
            route.on_arrival(work.event)
        except Exception as error:  # noqa: BLE001 -- it is only a hint: a fault in it must not stop the partition
            _log.error("arrival_not_told", position=work.record.position, error=type(error).__name__)
