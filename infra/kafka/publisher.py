"""Writing to Kafka: events through FastStream's broker, and records byte for byte through a producer of our own."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

import anyio
from aiokafka import AIOKafkaProducer
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, OutOfOrderSequenceNumber, RecordTooLargeError
from faststream.kafka import KafkaBroker
from faststream.security import BaseSecurity, SASLPlaintext, SASLScram256, SASLScram512

from infra.kafka.connection import KafkaConnection
from infra.kafka.dead_letter import Death, dead_letter
from infra.redaction import Redactor, redact
from topics.errors import OutageError, RejectedError
from topics.records import OutboundRecord, RawRecord

SEND_WITHIN_S: Final = 30.0
MAX_REQUEST_BYTES: Final = (
    104_857_600  # of raw records: what a broker takes at most; the topic's own limit is for the broker to say
)


class EventPublisher:
    """Publishes events through FastStream, so that its middlewares see them.

    An idempotent producer of the client counts a batch that the broker refused, and every later one of that partition is then out
    of order, for good: another producer takes its place.
    """

    def __init__(self, broker: KafkaBroker) -> None:
        self._broker = broker
        self._renewals = 0
        self._renewing = anyio.Lock()

    async def send(self, record: OutboundRecord) -> Awaitable[Any]:
        """Hand an event over. The awaitable ends when the broker has it.

        Raises:
            OutageError: The broker does not take it (here, or from the awaitable).
            RejectedError: It is larger than the broker allows.
        """
        headers = {name: (value or b"").decode() for name, value in record.headers}
        try:
            with anyio.fail_after(SEND_WITHIN_S):
                if self._renewing.locked():
                    async with self._renewing:
                        pass
                sent_with = self._renewals
                acknowledgement = await self._broker.publish(
                    record.value, topic=record.topic, key=record.key, headers=headers, no_confirm=True
                )
        except (KafkaError, TimeoutError) as error:
            raise _meaning_of(error) from error
        return _Acknowledgement(acknowledgement, lambda: self._renew(sent_with))

    async def _renew(self, sent_with: int) -> None:
        """Take another producer, unless somebody has done so since."""
        async with self._renewing:
            if self._renewals == sent_with:
                self._renewals += 1
                with anyio.move_on_after(SEND_WITHIN_S, shield=True):
                    await self._broker.stop()
                    await self._broker.start()


class _Acknowledgement:
    """What `send` gives. Unlike a coroutine it may be left alone, as happens when a handler fails after it said something."""

    def __init__(self, future: "asyncio.Future[Any]", renew: Callable[[], Awaitable[None]]) -> None:
        self._future = future
        self._renew = renew
        future.add_done_callback(_look_at)

    def __await__(self) -> Generator[Any, None, None]:
        return self._awaited().__await__()

    async def _awaited(self) -> None:
        try:
            await _acknowledged(self._future)
        except OutageError as error:
            if isinstance(error.__cause__, OutOfOrderSequenceNumber):
                await self._renew()
            raise


class RawProducer:
    """Writes records as they are: any bytes, repeated and null headers."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer

    async def write(self, record: OutboundRecord) -> None:
        """Write one record and wait for its acknowledgement.

        Raises:
            OutageError: It was not acknowledged.
            RejectedError: It is larger than the broker allows.
        """
        try:
            with anyio.fail_after(SEND_WITHIN_S):
                future = await self._hand_over(record)
        except (KafkaError, TimeoutError) as error:
            raise _meaning_of(error) from error
        await _acknowledged(future)

    async def _hand_over(self, record: OutboundRecord) -> "asyncio.Future[Any]":
        headers = list(record.headers)
        if record.key is not None or record.value is not None:
            return await self._producer.send(record.topic, record.value, key=record.key, headers=headers)
        # Kafka takes a record with neither key nor value, and somebody will send one; the client's own `send` refuses it.
        batch = self._producer.create_batch()
        batch.append(timestamp=None, key=None, value=None, headers=headers)
        partitions: set[int] = await self._producer.partitions_for(record.topic)
        return await self._producer.send_batch(batch, record.topic, partition=min(partitions))


class DeadLetterTopic:
    """The dead letters, on their topic."""

    def __init__(self, producer: RawProducer, *, topic: str, redactor: Redactor = redact) -> None:
        self._producer = producer
        self._topic = topic
        self._redact = redactor

    async def bury(self, record: RawRecord, death: Death) -> None:
        """Write a dead letter and wait for its acknowledgement.

        Raises:
            OutageError: It was not acknowledged, so the offset must wait.
        """
        try:
            told = replace(death, message=self._redact(death.message))  # it should quote nothing; readers of the topic see it
            await self._producer.write(dead_letter(record, told, topic=self._topic))
        except RejectedError as error:
            raise OutageError("the dead-letter topic refuses a record for its size: raise its max.message.bytes") from error


@asynccontextmanager
async def event_broker(connection: KafkaConnection, *, client_id: str) -> AsyncGenerator[KafkaBroker]:
    """A started FastStream broker that only publishes.

    Raises:
        ConfigError: The cluster cannot be reached.
    """
    broker = KafkaBroker(
        connection.bootstrap.split(","),
        security=security_of(connection),
        client_id=client_id,
        acks="all",
        enable_idempotence=connection.idempotent,
        linger_ms=2,
        # A full batch makes every handler that waits try again each time one leaves: at 16 KiB a third of what publishing costs.
        max_batch_size=131_072,
        allow_auto_create_topics=False,
        logger=None,
    )
    with connection.connecting():
        await _reach(connection)
    try:
        with connection.connecting():
            await broker.start()
        yield broker
    finally:
        with anyio.move_on_after(SEND_WITHIN_S, shield=True):
            await broker.stop()


def security_of(connection: KafkaConnection) -> BaseSecurity:
    """A connection's SASL and TLS, as FastStream wants them."""
    context = connection.ssl_context() if connection.tls else None
    if connection.mechanism is None:
        return BaseSecurity(ssl_context=context, use_ssl=connection.tls)
    user, password = connection.credentials()
    kind = {"PLAIN": SASLPlaintext, "SCRAM-SHA-256": SASLScram256, "SCRAM-SHA-512": SASLScram512}[connection.mechanism]
    return kind(username=user, password=password, ssl_context=context, use_ssl=connection.tls)


@asynccontextmanager
async def raw_producer(connection: KafkaConnection) -> AsyncGenerator[RawProducer]:
    """A started producer for records that must stay as they are.

    Raises:
        ConfigError: The cluster cannot be reached.
    """
    # Not idempotent: a producer that is never gets over a batch that was refused (see `EventPublisher`), and dead letters are what
    # is refused, by rights or size, until somebody mends it. Written twice they are one all the same, by their id.
    producer = AIOKafkaProducer(**connection.client_options(), acks="all", max_request_size=MAX_REQUEST_BYTES)
    try:
        with connection.connecting():
            await producer.start()
        yield RawProducer(producer)
    finally:
        with anyio.move_on_after(SEND_WITHIN_S, shield=True):
            await producer.stop()


def _look_at(future: "asyncio.Future[Any]") -> None:
    """Take a failure that nobody waits for any more: it is no surprise, the record runs again."""
    if not future.cancelled():
        future.exception()


async def _reach(connection: KafkaConnection) -> None:
    """Knock first: FastStream leaves a producer open that could not start, and the client complains of it on its own."""
    client = AIOKafkaClient(**connection.client_options())
    try:
        await client.bootstrap()
    finally:
        await client.close()


async def _acknowledged(future: "asyncio.Future[Any]") -> None:
    try:
        with anyio.fail_after(SEND_WITHIN_S):
            await future
    except (KafkaError, TimeoutError) as error:
        raise _meaning_of(error) from error


def _meaning_of(error: Exception) -> OutageError | RejectedError:
    if isinstance(error, MessageSizeTooLargeError | RecordTooLargeError):
        return RejectedError("an output is larger than the broker takes", code="output_too_large")
    return OutageError(f"the broker does not take records: {type(error).__name__}")
