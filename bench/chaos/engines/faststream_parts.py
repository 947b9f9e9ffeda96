"""What the FastStream controls share: a subscriber as its manual shows it, whose handler does what ours does. No engine itself."""

from collections.abc import Callable, Coroutine
from typing import Any

import anyio
from faststream import AckPolicy
from faststream.kafka import KafkaBroker, KafkaMessage

from bench.chaos.perform import Perform, delivery_of
from bench.chaos.spec import Spec
from infra.clock import SystemClock
from infra.kafka.consumer import raw_record
from infra.kafka.publisher import EventPublisher
from topics.catalogue import QUERIES
from topics.envelope import decode, encode
from topics.events import AnswerCompleted
from topics.records import RawRecord

Handle = Callable[[KafkaMessage], Coroutine[Any, Any, None]]


def broker_of(spec: Spec) -> KafkaBroker:
    """A broker that drains as long as ours may."""
    return KafkaBroker(spec.kafka_bootstrap, client_id=spec.incarnation, acks="all", graceful_timeout=spec.drain_s, logger=None)


def subscribe(broker: KafkaBroker, spec: Spec, perform: Perform, policy: AckPolicy) -> None:
    """Read what ours reads, in the same group and with the same session, acknowledged by FastStream's own policy."""
    subscriber = broker.subscriber(
        spec.catalogue.name(QUERIES),
        spec.catalogue.replay_name(QUERIES),
        group_id=spec.group,
        auto_offset_reset="earliest",
        ack_policy=policy,
        session_timeout_ms=int(spec.session_timeout_s * 1000),
        heartbeat_interval_ms=int(spec.session_timeout_s * 300),
        no_reply=True,
    )
    subscriber(_handler(broker, spec, perform))


async def serve(broker: KafkaBroker, perform: Perform) -> None:
    """Work until asked to stop."""
    await broker.start()
    try:
        await perform.stopping.wait()
    finally:
        with anyio.CancelScope(shield=True):
            await broker.stop()


def _handler(broker: KafkaBroker, spec: Spec, perform: Perform) -> Handle:
    publisher = EventPublisher(broker)

    async def handle(message: KafkaMessage) -> None:
        record: RawRecord = raw_record(message.raw_message)
        event: Any = decode(record, catalogue=spec.catalogue)
        async with perform.holding(delivery_of(event)) as outcome:
            answer = AnswerCompleted(thread_id=event.payload.thread_id, query_id=event.id, attempt=1, text=outcome)
            await (
                await publisher.send(
                    encode(
                        answer,
                        catalogue=spec.catalogue,
                        tenant=event.tenant,
                        source="chaos/faststream",
                        now=SystemClock().now(),
                        ordinal="0",
                        cause=event,
                    )
                )
            )

    return handle
