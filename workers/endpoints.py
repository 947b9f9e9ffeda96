"""What a worker process tells its operators over HTTP, and what it asks to know it."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import anyio

from infra.clock import SystemClock
from infra.http_endpoints import Endpoints, bind, serve
from infra.kafka.lag import lag_reader
from infra.kafka.runtime import Runtime
from infra.metrics import Exposition
from infra.models.door import Door
from infra.redis.client import probe
from infra.redis.effects import RedisEffectLedger
from infra.redis.keys import Keys
from infra.settings import Settings
from infra.vitals import Vitals


async def serve_endpoints(
    settings: Settings,
    runtimes: Sequence[Runtime],
    *,
    redis: Any,
    keys: Keys,
    ledger: RedisEffectLedger,
    doors: Sequence[Door[Any]],
) -> None:
    """Watch these members, and serve what is seen until cancelled.

    Raises:
        ConfigError: The address cannot be had, or the cluster cannot be reached.
    """
    listener = bind(settings.http_host, settings.http_port)
    async with lag_reader(settings.kafka()) as lag, anyio.create_task_group() as tasks:
        vitals = Vitals(runtimes, SystemClock(), lag, ask={"redis": partial(probe, redis, keys=keys)})
        tasks.start_soon(vitals.run)
        await serve(Endpoints(vitals, Exposition(vitals, effects_in_doubt=lambda: ledger.in_doubt, doors=doors)), listener)
