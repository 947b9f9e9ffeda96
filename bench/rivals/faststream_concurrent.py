"""faststream-concurrent-aiokafka, set up as its README says; commits are batched so that they do not cost it anything."""

import asyncio
from typing import Any

from faststream import FastStream
from faststream.kafka import KafkaBroker, KafkaMessage
from faststream.middlewares import AckPolicy
from faststream_concurrent_aiokafka import KafkaConcurrentProcessingMiddleware, initialize_concurrent_processing

from bench.rivals.faststream_alone import key_of
from bench.rivals.place import Place
from bench.rivals.watch import Watch


async def run(place: Place, watch: Watch) -> None:
    """As many as there are slots, in no order; commits what is finished without a gap."""
    broker = KafkaBroker(place.bootstrap, logger=None)
    broker.add_middleware(KafkaConcurrentProcessingMiddleware)
    app = FastStream(broker, logger=None)

    @broker.subscriber(place.topic, group_id=place.group, auto_offset_reset="earliest", ack_policy=AckPolicy.MANUAL)
    async def handle(body: dict[str, Any], message: KafkaMessage) -> None:
        del body
        await watch.handle(key_of(message))

    await initialize_concurrent_processing(
        context=broker.context, concurrency_limit=place.slots, commit_batch_size=1000, commit_batch_timeout_sec=1.0
    )
    await app.start()
    await asyncio.Event().wait()
