"""The client that all Python engines here stand on, reading and nothing else: what no-op handlers are measured against."""

from typing import Any

from aiokafka import AIOKafkaConsumer

from bench.rivals.place import Place
from bench.rivals.watch import Watch


async def run(place: Place, watch: Watch) -> None:
    """Read for ever, one batch after another."""
    client: Any = AIOKafkaConsumer(
        place.topic,
        bootstrap_servers=place.bootstrap,
        group_id=place.group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    await client.start()
    while True:
        for records in (await client.getmany(timeout_ms=200, max_records=500)).values():
            for record in records:
                await watch.handle(record.key)
