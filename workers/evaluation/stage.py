"""Where a run happens: a graph as workers build it, over a Redis and a back office that are there or are started for it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from infra.http_service import open_client
from infra.local.shop import ShopRecords
from infra.redis.checkpointer import HardenedRedisSaver
from infra.settings import Settings
from workers.evaluation.driver import Approver, Driver
from workers.parts import build_parts


@asynccontextmanager
async def open_driver(settings: Settings, *, approver: Approver) -> AsyncGenerator[Driver]:
    """A driver over the graph of these settings, with all its parts as a worker has them.

    Raises:
        ConfigError: A server is missing or would lose data. One sentence says which.
    """
    async with build_parts(settings) as parts, open_client() as http:
        yield Driver(
            agent=parts.agent,
            leases=parts.conversation.leases,
            saver=HardenedRedisSaver(parts.redis, keys=parts.keys),
            shop=ShopRecords(settings.back_office_url, http),
            approver=approver,
        )
