"""prosody-events on a real broker, where it wants Cassandra for what it remembers.

Its limits are those of several that did best here (the defaults, 32 handlers and 64 records, would hold it back), and it polls more
often than by default; what is of no use here (telemetry, probes, deferral, detection of monopolies) is off, which can only help it.
Source: prosody-events 0.6.1, CONFIGURATION.md.
"""

import asyncio
from typing import Any

from prosody import EventHandler, ProsodyClient

from bench.rivals.place import Place
from bench.rivals.watch import Watch

POLL_S = 0.01
MAX_UNCOMMITTED = 4096  # fewer starve 256 slots; many more fill a GiB and slow 1,000


class Handler(EventHandler):
    """Handles messages; there are no others."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    async def on_message(self, context: Any, message: Any) -> None:
        """One record."""
        del context
        await self._watch.handle(message.key)

    async def on_excise(self, context: Any, message: Any) -> None:
        """A tombstone."""

    async def on_timer(self, context: Any, timer: Any) -> None:
        """A timer."""


async def run(place: Place, watch: Watch) -> None:
    """As many as there are slots, in order for each key."""
    client = await ProsodyClient.create(
        bootstrap_servers=place.bootstrap,
        group_id=place.group,
        subscribed_topics=place.topic,
        source_system="bench",
        cassandra_nodes=place.cassandra,
        max_concurrency=place.slots,
        max_uncommitted=MAX_UNCOMMITTED,
        poll_interval=POLL_S,
        timeout=60.0,
        probe_port=None,
        telemetry_enabled=False,
        defer_enabled=False,
        monopolization_enabled=False,
    )
    await client.subscribe(Handler(watch))
    await asyncio.Event().wait()
