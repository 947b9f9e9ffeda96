import asyncio
import gc
from dataclasses import dataclass, field
from typing import Any, cast

import anyio
import pytest
from aiokafka.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError, OutOfOrderSequenceNumber
from faststream.exceptions import IncorrectState
from faststream.kafka import KafkaBroker

from infra.kafka import publisher as module
from infra.kafka.publisher import EventPublisher
from topics.errors import OutageError
from topics.records import OutboundRecord

RECORD = OutboundRecord("answers", b"acme/t", b"{}", (("ce_id", b"1"),))


@dataclass
class StubBroker:
    """Hands out futures that the test settles. As FastStream's, it has no producer between a stop and a start."""

    futures: list[asyncio.Future[Any]] = field(default_factory=list)
    error: KafkaError | None = None
    restarts: int = 0
    is_up: bool = True
    is_connected: bool = True
    is_away: bool = False
    stop_hangs: bool = False

    async def stop(self) -> None:
        await asyncio.sleep(0)
        self.is_up = False
        if self.stop_hangs:
            self.stop_hangs = False  # a second one finds it closed
            await anyio.sleep_forever()
        self.is_connected = False

    async def start(self) -> None:
        if self.is_away:
            raise KafkaConnectionError("away")
        self.restarts += 1
        self.is_up = self.is_up or not self.is_connected
        self.is_connected = True

    async def publish(self, *_: Any, **__: Any) -> asyncio.Future[Any]:
        if not self.is_up:
            raise IncorrectState("no producer")
        if self.error:
            raise self.error
        self.futures.append(asyncio.get_running_loop().create_future())
        return self.futures[-1]


async def test_an_acknowledgement_ends_when_the_broker_has_the_event():
    broker = StubBroker()
    acknowledgement = await EventPublisher(cast("KafkaBroker", broker)).send(RECORD)
    broker.futures[0].set_result("metadata")
    await acknowledgement


async def test_a_broker_that_refuses_is_an_outage_here_and_there():
    broker = StubBroker()
    acknowledgement = await EventPublisher(cast("KafkaBroker", broker)).send(RECORD)
    broker.futures[0].set_exception(KafkaTimeoutError())
    with pytest.raises(OutageError):
        await acknowledgement
    broker.error = KafkaTimeoutError()
    with pytest.raises(OutageError):
        await EventPublisher(cast("KafkaBroker", broker)).send(RECORD)


async def test_an_acknowledgement_that_nobody_waits_for_makes_no_noise():
    """A handler that fails after its first words leaves some behind; warnings are errors in this suite."""
    broker = StubBroker()
    publisher = EventPublisher(cast("KafkaBroker", broker))
    for _ in range(2):
        await publisher.send(RECORD)
    broker.futures[0].set_exception(KafkaTimeoutError())
    broker.futures.clear()
    gc.collect()
    await asyncio.sleep(0)


async def test_a_producer_that_lost_its_place_is_replaced_once_however_many_find_out():
    """Not for each: the second would throw away what was sent with the new one."""
    broker = StubBroker()
    publisher = EventPublisher(cast("KafkaBroker", broker))
    acknowledgements = [await publisher.send(RECORD) for _ in range(3)]
    for future in broker.futures:
        future.set_exception(OutOfOrderSequenceNumber())
    for acknowledgement in acknowledgements:
        with pytest.raises(OutageError):
            await acknowledgement
    assert broker.restarts == 1
    await lose_place(broker, publisher)
    assert broker.restarts == 2


async def lose_place(broker: StubBroker, publisher: EventPublisher) -> None:
    lost = await publisher.send(RECORD)
    broker.futures[-1].set_exception(OutOfOrderSequenceNumber())
    with pytest.raises(OutageError):
        await lost


async def test_a_producer_that_could_not_be_replaced_at_once_is_replaced_later():
    """P1: everything behind it would be a fault of ours, and dead after its tries."""
    broker = StubBroker(is_away=True)
    publisher = EventPublisher(cast("KafkaBroker", broker))
    await lose_place(broker, publisher)
    with pytest.raises(OutageError):
        await publisher.send(RECORD)
    broker.is_away = False
    again = await publisher.send(RECORD)
    broker.futures[-1].set_result("metadata")
    await again


async def test_a_producer_that_does_not_end_is_replaced_all_the_same(monkeypatch: pytest.MonkeyPatch):
    """P7: it waits for a partition without a leader, without an end, and everybody would wait for it."""
    monkeypatch.setattr(module, "STOP_WITHIN_S", 0.05)
    broker = StubBroker(stop_hangs=True)
    publisher = EventPublisher(cast("KafkaBroker", broker))
    await lose_place(broker, publisher)
    await publisher.send(RECORD)
    assert broker.restarts == 1
