"""What every engine's handler does with a record: hold its thread, begin its effect, perform it, write down the result.

Whatever guards an engine has or lacks, this part is the same, and it is what fills the ledger.
"""

import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import anyio

from bench.chaos.effects import OutsideClient
from bench.chaos.facts import Begun, Ended, Granted, Started
from bench.chaos.inputs import Task, task_of
from bench.chaos.ledger import Ledger, now_ns
from infra.models.metering import Call, Meter
from infra.redis.effects import EffectClaim, RedisEffectLedger
from infra.redis.leases import RedisLeases
from topics.envelope import Event
from topics.errors import RejectedError
from topics.events import QueryAsked

PROVIDER: Final = "outside"


@dataclass(frozen=True, slots=True)
class Delivery:
    """A record as an engine gives it to its handler. `epoch` counts assignments, where the engine knows them."""

    task: Task
    topic: str
    partition: int
    offset: int
    epoch: int = 0

    @property
    def thread(self) -> str:
        """What is leased."""
        return f"{self.task.tenant}.{self.task.key}"

    @property
    def place(self) -> dict[str, Any]:
        """Where it stands, for the ledger."""
        task = self.task
        where = {"partition": f"{self.topic}/{self.partition}", "offset": self.offset, "epoch": self.epoch}
        return {"event_id": task.event_id, "key": self.thread, **where}


def delivery_of(event: Event[QueryAsked], *, epoch: int = 0) -> Delivery:
    """An event that our runtime understood."""
    record = event.record
    return Delivery(task_of(event.payload.text), record.topic, record.partition, record.offset, epoch)


@dataclass(frozen=True, slots=True)
class Perform:
    """Call it with a delivery; it returns `done` or `in_doubt`, or raises what a handler may raise.

    `stopping` is set by the first SIGTERM. `redis` is the worker's client, for engines that need more of it.
    """

    who: str
    ledger: Ledger
    leases: RedisLeases
    effects: RedisEffectLedger
    outside: OutsideClient
    redis: Any
    meter: Meter
    stopping: anyio.Event = field(default_factory=anyio.Event)

    async def __call__(self, delivery: Delivery) -> str:
        """Do everything, and let the thread go."""
        async with self.holding(delivery) as outcome:
            return outcome

    @asynccontextmanager
    async def holding(self, delivery: Delivery) -> AsyncGenerator[str]:
        """Do everything, and hold the thread until the block ends: what the block publishes is still this writer's."""
        outcome = "cancelled"
        self.ledger.write(Started(at_ns=now_ns(), who=self.who, **delivery.place))
        try:
            async with self.leases.hold(delivery.thread) as lease:
                self._note_grant(delivery, lease.fence)
                reached = await self._act(delivery, lease.fence)
                yield reached
                outcome = reached
        except Exception as error:
            outcome = type(error).__name__
            raise
        finally:
            self.ledger.write(Ended(at_ns=now_ns(), who=self.who, **delivery.place, outcome=outcome))

    def _note_grant(self, delivery: Delivery, fence: int) -> None:
        event_id = delivery.task.event_id
        self.ledger.write(Granted(at_ns=now_ns(), who=self.who, event_id=event_id, key=delivery.thread, fence=fence))

    async def _act(self, delivery: Delivery, fence: int) -> str:
        task = delivery.task
        await anyio.sleep(task.work_ms / 2000)
        _misbehave(task)
        for _ in range(task.calls):
            await self.meter.admit(Call(PROVIDER, "model", task.tenant, tokens=1))
            await self.outside.call_model(event_id=task.event_id, who=self.who)
        if task.effect == "none":
            return "done"
        claim = await self._begin(delivery, fence)
        if claim.state == "done":
            return claim.result or "done"
        if claim.state == "in_doubt" and task.effect == "irreversible":
            return "in_doubt"  # it may have happened: a person decides, nobody tries again
        await anyio.sleep(task.work_ms / 2000)
        await self.outside.perform(
            effect_id=_effect_id(task),
            event_id=task.event_id,
            key=delivery.thread,
            kind=task.effect,
            fence=fence,
            who=self.who,
            fails=task.fails,
        )
        await self.effects.finish(_effect_id(task), result="done", ok=True)
        return "done"

    async def _begin(self, delivery: Delivery, fence: int) -> EffectClaim:
        asked_at_ns = now_ns()
        claim = await self.effects.begin(_effect_id(delivery.task), thread=delivery.thread, fence=fence)
        self.ledger.write(
            Begun(
                at_ns=now_ns(),
                who=self.who,
                event_id=delivery.task.event_id,
                key=delivery.thread,
                fence=fence,
                asked_at_ns=asked_at_ns,
                state=claim.state,
            )
        )
        return claim


def _effect_id(task: Task) -> str:
    return f"{task.tenant}:{task.event_id}"


def _misbehave(task: Task) -> None:
    match task.does:
        case "reject":
            raise RejectedError("the task asks for it", code="chaos_reject")
        case "raise":
            raise RuntimeError("the task asks for it")
        case "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        case "work":
            return
