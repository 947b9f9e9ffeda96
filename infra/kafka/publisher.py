"""Writing to Kafka: events through FastStream's broker, and records byte for byte through a producer of our own."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, Final

import anyio
from aiokafka import AIOKafkaProducer
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, OutOfOrderSequenceNumber, RecordTooLargeError
from aiokafka.partitioner import DefaultPartitioner
from faststream.kafka import KafkaBroker
from faststream.security import BaseSecurity, SASLPlaintext, SASLScram256, SASLScram512

from infra.kafka.connection import KafkaConnection
from infra.kafka.dead_letter import ID, REPLAY_ID, Death, dead_letter, header_text
from infra.kafka.guards import check_codecs
from infra.kafka.header_names import is_odd, with_odd_names, written
from infra.redaction import Redactor, redact
from topics.errors import OutageError, RejectedError
from topics.records import OutboundRecord, RawRecord

_PARTITIONER: Final = DefaultPartitioner()

SEND_WITHIN_S: Final = 30.0
STOP_WITHIN_S: Final = 10.0
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
        self._is_broken = False

    async def send(self, record: OutboundRecord) -> Awaitable[Any]:
        """Hand an event over. The awaitable ends when the broker has it.

        Raises:
            OutageError: The broker does not take it (here, or from the awaitable).
            RejectedError: It is larger than the broker allows.
        """
        headers = {name: (value or b"").decode() for name, value in record.headers}
        try:
            with anyio.fail_after(SEND_WITHIN_S):
                if self._renewing.locked() or self._is_broken:
                    async with self._renewing:
                        if self._is_broken:
                            await self._replace()
                sent_with = self._renewals
                acknowledgement = await self._broker.publish(
                    record.value, topic=record.topic, key=record.key, headers=headers, no_confirm=True
                )
        except (KafkaError, TimeoutError) as error:
            raise _meaning_of(error) from error
        return _Acknowledgement(acknowledgement, lambda: self._renew(sent_with))

    async def _renew(self, sent_with: int) -> None:
        """Take another producer, unless somebody has done so since. When that fails, whoever sends next tries it again."""
        async with self._renewing:
            if self._renewals == sent_with:
                self._renewals += 1
                self._is_broken = True
                with suppress(KafkaError, TimeoutError):
                    await self._replace()

    async def _replace(self) -> None:
        with anyio.fail_after(SEND_WITHIN_S, shield=True):
            with anyio.move_on_after(STOP_WITHIN_S) as stopping:
                await self._broker.stop()
            if stopping.cancelled_caught:
                # It waits for a partition without a leader, for ever. It is let go as it is, and a second stop only says so.
                await self._broker.stop()
            await self._broker.start()
        self._is_broken = False


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
        has_odd_names = any(is_odd(name) for name, _ in headers)
        if record.key is not None and not has_odd_names:
            return await self._producer.send(record.topic, record.value, key=record.key, headers=headers)
        # What the client's own `send` refuses: neither key nor value, or a name of any bytes. And what has no key: copies of one
        # dead letter must lie in one partition, or nobody can say which of two edits came first.
        batch = self._producer.create_batch()
        if has_odd_names:
            batch, headers = with_odd_names(batch), written(headers)
        batch.append(timestamp=None, key=record.key, value=record.value, headers=headers)
        partitions = sorted(await self._producer.partitions_for(record.topic))
        by = record.key if record.key is not None else _identity(record)
        return await self._producer.send_batch(batch, record.topic, partition=_PARTITIONER(by, partitions, partitions))


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
        ConfigError: The cluster cannot be reached, or a codec is missing.
    """
    check_codecs()
    # Not idempotent: a producer that is never gets over a batch that was refused (see `EventPublisher`), and dead letters are what
    # is refused, by rights or size, until somebody mends it. Written twice they are one all the same, by their id.
    # Compressed: a topic's limit is for compressed batches, so an input may be larger than that, and its letter must fit as well.
    producer = AIOKafkaProducer(
        **connection.client_options(), acks="all", compression_type="zstd", max_request_size=MAX_REQUEST_BYTES
    )
    try:
        with connection.connecting():
            await producer.start()
        yield RawProducer(producer)
    finally:
        with anyio.move_on_after(SEND_WITHIN_S, shield=True):
            await producer.stop()


def _identity(record: OutboundRecord) -> bytes:
    """What copies of one replay, or of one dead letter, have in common."""
    return (header_text(record.headers, REPLAY_ID) or header_text(record.headers, ID) or "").encode()


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
