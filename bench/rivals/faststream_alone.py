"""FastStream by itself: a plain subscriber, and one with `max_workers`.

Both keep the default acknowledgement, which commits on a timer what was handed out: with any other, `max_workers` makes members of
the group, and then runs no more handlers at once than there are partitions.
Source: faststream 0.7.8, `faststream/kafka/subscriber/factory.py`, `usecase.py`.
"""

import asyncio
from typing import Any

from faststream.kafka import KafkaBroker, KafkaMessage

from bench.rivals.place import Place
from bench.rivals.watch import Watch


async def one_by_one(place: Place, watch: Watch) -> None:
    """One record at a time."""
    await _run(place, watch, {})


async def pool(place: Place, watch: Watch) -> None:
    """As many as there are slots, in no order."""
    await _run(place, watch, {"max_workers": place.slots})


async def _run(place: Place, watch: Watch, options: dict[str, Any]) -> None:
    broker = KafkaBroker(place.bootstrap, logger=None)

    @broker.subscriber(place.topic, group_id=place.group, auto_offset_reset="earliest", **options)
    async def handle(body: dict[str, Any], message: KafkaMessage) -> None:
        del body
        await watch.handle(key_of(message))

    await broker.start()
    await asyncio.Event().wait()


def key_of(message: KafkaMessage) -> str:
    """The record's key as text."""
    record: Any = message.raw_message
    return (record.key or b"").decode()
