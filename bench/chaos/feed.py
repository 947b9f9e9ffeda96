"""Publishes inputs, at a pace or at once, and writes down what the broker has."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import anyio
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from bench.chaos.facts import Published
from bench.chaos.inputs import Task, claim_id_of, record_of
from bench.chaos.ledger import Ledger, now_ns
from infra.kafka.connection import KafkaConnection
from topics.catalogue import Catalogue

AGAIN_AFTER_S: Final = 0.5


@dataclass(slots=True)
class Feeder:
    """One producer. `pending` counts the inputs that it was given and the broker has not acknowledged."""

    ledger: Ledger
    catalogue: Catalogue
    producer: Any
    pending: int = 0

    async def feed(self, tasks: Sequence[Task], *, rate_per_s: float | None = None) -> None:
        """Publish tasks in their order, and return when all are acknowledged, however long the broker is away."""
        began_s = anyio.current_time()
        async with anyio.create_task_group() as sending:
            for number, task in enumerate(tasks):
                if rate_per_s:
                    await anyio.sleep_until(began_s + number / rate_per_s)
                sending.start_soon(self._see_to, task, await self._hand_over(task))

    async def _hand_over(self, task: Task) -> Any:
        record = record_of(task, catalogue=self.catalogue)
        while True:
            try:
                return await self.producer.send(record.topic, record.value, key=record.key, headers=list(record.headers))
            except KafkaError:
                await anyio.sleep(AGAIN_AFTER_S)

    async def _see_to(self, task: Task, acknowledgement: Any) -> None:
        """An input whose acknowledgement is lost is published again, under the same id: then there may be two of it."""
        while True:
            try:
                told = await acknowledgement
                break
            except KafkaError:
                acknowledgement = await self._hand_over(task)
        self.ledger.write(
            Published(
                at_ns=now_ns(),
                who=self.ledger.who,
                event_id=task.event_id,
                claim_id=claim_id_of(task),
                key=f"{task.tenant}.{task.key}",
                partition=f"{told.topic}/{told.partition}",
                offset=told.offset,
                effect=task.effect,
            )
        )
        self.pending -= 1

    def expect(self, tasks: Iterable[Task]) -> list[Task]:
        """Take note of what will be fed, before it is: a run is not quiet while inputs are still to come."""
        expected = list(tasks)
        self.pending += len(expected)
        return expected


@asynccontextmanager
async def feeding(connection: KafkaConnection, *, ledger: Ledger, catalogue: Catalogue) -> AsyncGenerator[Feeder]:
    """A feeder for as long as the block runs."""
    producer = AIOKafkaProducer(**connection.client_options(), acks="all", enable_idempotence=True, linger_ms=5)
    await producer.start()
    try:
        yield Feeder(ledger, catalogue, producer)
    finally:
        with anyio.move_on_after(AGAIN_AFTER_S * 10, shield=True):
            await producer.stop()
