"""Our runtime as a worker has it, with claims in Redis, or without, as rivals have none."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any, cast

from bench.no_inbox import NoInbox
from bench.rivals.place import Place
from bench.rivals.watch import Watch
from infra.claims import Inbox
from infra.clock import SystemClock
from infra.collector import calm_collector
from infra.kafka.board import RuntimeConfig
from infra.kafka.connection import KafkaConnection
from infra.kafka.consumer import GroupConsumer
from infra.kafka.execution import Executor
from infra.kafka.publisher import DeadLetterTopic, EventPublisher, event_broker, raw_producer
from infra.kafka.routes import Route
from infra.kafka.runtime import Runtime
from infra.redis.client import connect
from infra.redis.inbox import RedisInbox
from topics.catalogue import DEAD_LETTERS, Catalogue
from topics.envelope import Event
from topics.events import Payload

RETENTION_S = 3600
HANDLER_TIMEOUT_S = 300.0


async def with_claims(place: Place, watch: Watch) -> None:
    """As a worker runs."""
    redis = connect(place.redis_url, timeout_s=10.0)
    try:
        await _run(place, watch, RedisInbox(redis, group=place.group, retention_s=RETENTION_S))
    finally:
        await redis.aclose()


async def without_claims(place: Place, watch: Watch) -> None:
    """The same without a round trip for each batch of records."""
    await _run(place, watch, NoInbox())


async def _run(place: Place, watch: Watch, inbox: Inbox) -> None:
    connection, catalogue, clock = KafkaConnection(place.bootstrap), Catalogue(), SystemClock()
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(event_broker(connection, client_id=place.group))
        letters = await stack.enter_async_context(raw_producer(connection))
        runtime = Runtime(
            group=place.group,
            owner=place.group,
            routes=[Route(catalogue.spec(place.topic), cast("Any", _handler(watch)))],
            catalogue=catalogue,
            consumer=GroupConsumer(connection, group=place.group, topics=[place.topic]),
            inbox=inbox,
            executor=Executor(EventPublisher(broker), catalogue, clock, place.group, HANDLER_TIMEOUT_S),
            dead_letters=DeadLetterTopic(letters, topic=catalogue.name(DEAD_LETTERS)),
            clock=clock,
            config=RuntimeConfig(slots=place.slots),
        )
        calm_collector()
        await runtime.run()


def _handler(watch: Watch) -> Any:
    async def handle(event: Event[Any]) -> AsyncGenerator[Payload]:
        await watch.handle(event.key)
        return
        yield

    return handle
