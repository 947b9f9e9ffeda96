"""One stack per broker for the whole run; a realm with two workers that stories share; a world per test."""

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from infra.local.apache_kafka import apache_kafka_missing
from tests.stories.servers import KAFKA_BOOTSTRAP, REDIS_URL, Realm, Servers, shared_crew, shared_servers
from tests.stories.world import World, open_world

BROKERS = ("external",) if KAFKA_BOOTSTRAP else ("tansu", "apache-kafka")


@pytest.fixture(scope="session", params=BROKERS)
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """A broker, Redis, the model server and the back office."""
    kind = request.param
    if kind == "apache-kafka" and (missing := apache_kafka_missing()):
        pytest.skip(missing)
    folder: Path = tmp_path_factory.mktemp(kind)
    with shared_servers(kind, folder, kafka_bootstrap=KAFKA_BOOTSTRAP, redis_url=REDIS_URL) as running:
        yield running


@pytest.fixture(scope="session")
def staffed(servers: Servers) -> Iterator[Realm]:
    """A realm with two workers. Who kills workers uses a realm of its own."""
    realm = servers.portal.call(servers.make_realm, "staffed")
    with shared_crew(servers, realm, "worker-1", "worker-2"):
        yield realm


@pytest.fixture
def world_in(servers: Servers, request: pytest.FixtureRequest) -> Callable[[Realm], AbstractAsyncContextManager[World]]:
    """How a test opens its world in a realm."""
    name = f"w{abs(hash(request.node.nodeid)) % 10**8}"
    return lambda realm: open_world(servers, realm, name)


FIGURES = pytest.StashKey[list[str]]()


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str, object], None]:
    """Say a number that a story saw; the run's end shows them."""
    figures = request.config.stash.setdefault(FIGURES, [])
    return lambda name, value: figures.append(f"{request.node.name}: {name}: {value}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the stories counted."""
    if figures := terminalreporter.config.stash.get(FIGURES, []):
        terminalreporter.section("stories")
        for line in figures:
            terminalreporter.line(line)
