"""Lanes to slots: which records start, when, and the task that each of them runs in."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol

import anyio
from anyio.abc import TaskGroup

from infra.claims import Inbox
from infra.kafka.assignment import Work
from infra.kafka.board import Board
from infra.kafka.execution import Executor, Outcomes
from infra.kafka.lanes import LaneTable
from infra.kafka.routes import Route
from infra.kafka.suspects import Suspects
from infra.kafka.unit_tasks import UnitTasks
from topics.errors import CrashLoopError, HaltError, SluiceError

LONGEST_NAP_S: Final = 1.0
SUSPECT_WAIT_S: Final = 0.2
TAKE_BACK_WITHIN_S: Final = 3.0


class Ends(Protocol):
    """Who decides what becomes of work after its handler."""

    async def conclude(self, work: Work, error: Exception | None) -> None:
        """The handler ended, well or with an error."""
        ...

    async def hand_back(self, work: Work, *, delay_s: float = 0.0) -> None:
        """It was not tried."""
        ...

    def skip(self, work: Work) -> None:
        """Somebody settled it meanwhile."""
        ...


class Dispatcher:
    """Fills free slots with ready lanes. A unit is one record, or one batch; it takes one slot."""

    def __init__(self, board: Board, *, inbox: Inbox, executor: Executor, ends: Ends, owner: str, tasks: TaskGroup) -> None:
        self._board = board
        self._inbox = inbox
        self._executor = executor
        self._ends = ends
        self._owner = owner
        self._tasks = tasks
        self._units = UnitTasks()
        self._turn = list(board.routes)
        self._batch_since_s: dict[str, float] = {}
        self._suspects = Suspects(crash_limit=board.config.retry.crash_limit)
        self._starting: list[Work] = []
        self._cut: list[Work] = []
        self.running = 0

    async def run(self) -> None:
        """Start what is ready, for ever; at the end, end what was started."""
        self._tasks.start_soon(self._units.watch)
        try:
            while True:
                wake = self._board.wake
                await self._start_ready()
                alarm = asyncio.get_running_loop().call_later(self._nap_s(), wake.set)
                await wake.wait()
                alarm.cancel()
        finally:
            await self._units.close()
            await self._take_back()

    async def _start_ready(self) -> None:
        while units := self._pick():
            works = [work for _, unit in units for work in unit]
            self._board.in_flight.update(works)
            self._starting = works  # a halt may come between a start and its answer
            starts = await self._board.until_answered(self._write_starts([work.claim_id for work in works]))
            self._starting = []
            for work, count in zip(works, starts, strict=True):
                work.starts = count
            for route, unit in units:
                self._units.start(self._execute(route, unit), unit)

    def _write_starts(self, claim_ids: list[str]) -> Callable[[], Awaitable[Any]]:
        return lambda: self._inbox.start(claim_ids, owner=self._owner)

    def _pick(self) -> list[tuple[Route, list[Work]]]:
        """Units that may start now, topics taking turns."""
        board = self._board
        now_s = board.clock.monotonic_s()
        free = board.config.slots - self.running
        allowance = board.gate.allowance(now_s)
        free = free if allowance is None else min(free, allowance)
        units: list[tuple[Route, list[Work]]] = []
        idle = 0
        while free > 0 and idle < len(self._turn):
            name = self._turn.pop(0)
            self._turn.append(name)
            unit = self._take(name, now_s)
            idle = 0 if unit else idle + 1
            if unit:
                free -= 1
                self.running += 1
                board.gate.started()
                units.append((board.routes[name], unit))
        board.counters.peak_running = max(board.counters.peak_running, self.running)
        return units

    def _take(self, name: str, now_s: float) -> list[Work]:
        route, lanes = self._board.routes[name], self._board.lanes[name]
        if route.batch_handler is None:
            return self._heads(lanes, 1, now_s)
        ready = lanes.ready(now_s)
        if not ready:
            self._batch_since_s.pop(name, None)
            return []
        since_s = self._batch_since_s.setdefault(name, now_s)
        if ready < route.batch_size and now_s - since_s < route.batch_wait_s:
            return []
        del self._batch_since_s[name]
        return self._heads(lanes, route.batch_size, now_s)

    def _nap_s(self) -> float:
        """Until the next lane is due, a batch is old enough, or the gate may be tried."""
        board = self._board
        if self.running >= board.config.slots:
            return LONGEST_NAP_S  # a slot that is freed wakes us; a lane that is due must not
        now_s = board.clock.monotonic_s()
        moments = [due_s for lanes in board.lanes.values() if (due_s := lanes.next_due_s()) is not None]
        moments += [since_s + board.routes[name].batch_wait_s for name, since_s in self._batch_since_s.items()]
        if board.gate.shut_until_s is not None:
            moments = [max(board.gate.shut_until_s, now_s + 0.05)]
        return min(max(min(moments, default=now_s + LONGEST_NAP_S) - now_s, 0.001), LONGEST_NAP_S)

    async def _execute(self, route: Route, unit: list[Work]) -> None:
        outcomes: Outcomes = {work: refusal for work in unit if (refusal := self._refusal(work))}
        healthy = [work for work in unit if work not in outcomes and work.starts and work.assignment.live]
        self._executor.refuse(outcomes)
        if healthy:
            outcomes |= await self._executor.run(route, healthy, partial(self._let_out, unit))
        self.running -= 1
        await self._conclude(unit, outcomes)

    def _let_out(self, unit: list[Work], work: Work, end: Callable[[], Coroutine[Any, Any, Outcomes]]) -> None:
        """A record of a batch ends before its batch: a failed one is due again sooner, and a kill finds only what still runs."""
        unit.remove(work)
        self._units.start(self._end(work, end), [work])

    async def _end(self, work: Work, end: Callable[[], Coroutine[Any, Any, Outcomes]]) -> None:
        await self._conclude([work], await end())

    async def _conclude(self, unit: Sequence[Work], outcomes: Outcomes) -> None:
        self._suspects.ended(unit)
        if self._units.closing:
            self._cut += (work for work in unit if work.starts)
            return
        for place, work in enumerate(unit):
            try:
                await self._conclude_one(work, outcomes)
            except HaltError:
                self._cut += (one for one in unit[place:] if one.starts)
                raise
        self._board.notify()

    async def _conclude_one(self, work: Work, outcomes: Outcomes) -> None:
        if not work.starts:
            self._ends.skip(work)
        elif work in outcomes:
            await self._ends.conclude(work, outcomes[work])
        else:
            await self._ends.hand_back(work)

    async def _take_back(self) -> None:
        """A worker that halts takes its starts back: a halt is no death, and who starts it again must blame no record for it."""
        with anyio.move_on_after(TAKE_BACK_WITHIN_S, shield=True), suppress(SluiceError):
            await self._inbox.release([work.claim_id for work in (*self._starting, *self._cut)])

    def _refusal(self, work: Work) -> Exception | None:
        """Why a record is not even tried: nobody understands it, or its worker died each time."""
        if work.refusal is not None:
            return work.refusal
        crashes = work.starts - 1 - work.claim.failures - work.owed
        if crashes >= self._board.config.retry.crash_limit:
            return CrashLoopError(f"its worker died {crashes} times while it ran")
        return None

    def _heads(self, lanes: LaneTable[Work], count: int, now_s: float) -> list[Work]:
        heads: list[Work] = []
        while len(heads) < count and (taken := lanes.take(now_s)):
            work = taken[1]
            if self._suspects.may_start(work):
                heads.append(work)
            else:
                lanes.postpone(work.lane, due_at_s=now_s + SUSPECT_WAIT_S)
        return heads
