"""Servers that the tests of a whole run share."""

from collections.abc import AsyncIterator, Iterator

import pytest
from anyio.from_thread import start_blocking_portal
from redis.asyncio import Redis

from infra.local.redis_server import redis_server
from infra.redis.client import connect
from infra.redis.keys import Keys


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Redis of this run's own, with search and JSON and the append-only file."""
    folder = tmp_path_factory.mktemp("redis")
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(redis_server(data_dir=folder)) as server:
        yield server.url


@pytest.fixture
async def redis_client(redis_url: str) -> AsyncIterator[Redis]:
    client = connect(redis_url, timeout_s=5.0)
    yield client
    await client.aclose()


@pytest.fixture
def redis_keys(request: pytest.FixtureRequest) -> Keys:
    """A prefix of this test's own: tests share the server, not their keys."""
    return Keys(prefix=f"test-{abs(hash(request.node.nodeid))}")
