"""What upstream services, approvers and operators do from outside: publish events, and read what comes of them."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from infra.clock import SystemClock
from infra.kafka.publisher import EventPublisher, event_broker
from infra.kafka.reading import follow
from infra.settings import Settings
from topics.catalogue import Catalogue, TopicSpec
from topics.envelope import Event, decode, encode
from topics.errors import RejectedError
from topics.events import Payload
from topics.records import OutboundRecord, RawRecord


@dataclass(frozen=True, slots=True)
class Client:
    """A publisher and reader of events. `source` names who speaks."""

    settings: Settings
    catalogue: Catalogue
    publisher: EventPublisher
    clock: SystemClock
    source: str

    async def publish(self, payload: Payload, *, tenant: str, event_id: str | None = None) -> None:
        """Publish one event and wait for its acknowledgement. An event without an identity of its own needs an id.

        Raises:
            MalformedError: No worker would take it, for its tenant, its id or its payload. Nothing was sent.
        """
        await (await self.publisher.send(self.record(payload, tenant=tenant, event_id=event_id)))

    def record(self, payload: Payload, *, tenant: str, event_id: str | None = None) -> OutboundRecord:
        """The record of one event, read once by the rules of those who will read it.

        Raises:
            MalformedError: They would not take it.
        """
        record = encode(
            payload,
            catalogue=self.catalogue,
            tenant=tenant,
            source=self.source,
            now=self.clock.now(),
            ordinal="0",
            event_id=event_id,
        )
        decode(RawRecord(record.topic, 0, 0, record.key, record.value, record.headers), catalogue=self.catalogue)
        return record

    @asynccontextmanager
    async def watch(self, specs: Sequence[TopicSpec]) -> AsyncGenerator[AsyncGenerator[Event[Any]]]:
        """Events published after this block was entered; records that are no events of ours are passed over."""
        async with follow(self.settings.kafka(), [self.catalogue.name(spec) for spec in specs]) as records:
            yield self._events(records)

    async def _events(self, records: AsyncGenerator[Any]) -> AsyncGenerator[Event[Any]]:
        async for record in records:
            try:
                yield decode(record, catalogue=self.catalogue)
            except RejectedError:
                continue


@asynccontextmanager
async def open_client(settings: Settings, *, source: str) -> AsyncGenerator[Client]:
    """A connected client.

    Raises:
        ConfigError: The cluster cannot be reached.
    """
    async with event_broker(settings.kafka(), client_id=source) as broker:
        yield Client(settings, Catalogue(settings.topic_prefix), EventPublisher(broker), SystemClock(), source)
