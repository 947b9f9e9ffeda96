"""The servers that stories share: one stack per broker, and realms on it that see nothing of each other."""

import os
import secrets
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from infra.settings import Settings
from topics.catalogue import Catalogue
from workers.demo.crew import crew
from workers.demo.host import Host, furnish, hosted
from workers.demo.people import UNSIGNED

T = TypeVar("T")

# The way to name servers of one's own to the tests.
KAFKA_BOOTSTRAP = os.environ.get("KAFKA_BOOTSTRAP")  # noqa: TID251 settings are not read before the stack is up
REDIS_URL = os.environ.get("REDIS_URL")  # noqa: TID251 as above

BrokerKind = Literal["tansu", "apache-kafka", "external"]


@dataclass(frozen=True)
class Realm:
    """A world of its own on shared servers: its topics, groups and keys have a prefix, its workers a data folder."""

    data_dir: Path
    settings: Settings

    @property
    def catalogue(self) -> Catalogue:
        return Catalogue(self.settings.topic_prefix)


@dataclass
class Servers:
    """A stack that runs in a thread of its own, so that tests with loops of their own may share it."""

    kind: BrokerKind
    host: Host
    portal: BlockingPortal
    folder: Path
    run: str = field(default_factory=lambda: secrets.token_hex(3))

    @property
    def is_kafka(self) -> bool:
        return self.kind != "tansu"

    @property
    def owns_redis(self) -> bool:
        return "redis" in self.host.stack.names

    @property
    def model_control(self) -> str:
        return self.host.stack.endpoints.model_base_url.removesuffix("/v1") + "/control"

    @property
    def back_office(self) -> str:
        return self.host.stack.endpoints.back_office_url

    async def call(self, function: Callable[..., Coroutine[Any, Any, T]], *arguments: Any, **named: Any) -> T:
        """Run something in the loop that the servers belong to."""
        return await anyio.to_thread.run_sync(partial(self.portal.call, partial(function, *arguments, **named)))

    async def realm(self, name: str, **settings: Any) -> Realm:
        """A new realm, with its topics made. Unsigned decisions count, unless it is given a policy."""
        return await self.call(self.make_realm, name, **settings)

    async def make_realm(self, name: str, **settings: Any) -> Realm:
        """The same, from the loop of the servers."""
        data_dir = self.folder / name
        (data_dir / "logs").mkdir(parents=True)
        prefix = f"{name}-{self.run}"
        own = {"topic_prefix": f"{prefix}.", "group_prefix": prefix, "redis_prefix": prefix, "policy_file": str(UNSIGNED)}
        host = await furnish(self.host.stack, data_dir, **{**own, **settings})
        return Realm(data_dir, host.settings)

    async def restart_redis(self) -> None:
        """SIGKILL, and back from the append-only file."""
        await self.call(self.host.stack.restart_redis)


@contextmanager
def shared_servers(
    kind: BrokerKind, folder: Path, *, kafka_bootstrap: str | None = None, redis_url: str | None = None
) -> Iterator[Servers]:
    broker = "apache-kafka" if kind == "apache-kafka" else "tansu"
    hosting = hosted(folder, broker=broker, kafka_bootstrap=kafka_bootstrap, redis_url=redis_url)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(hosting) as host:
        yield Servers(kind, host, portal, folder)


@contextmanager
def shared_crew(servers: Servers, realm: Realm, *names: str) -> Iterator[None]:
    """Workers that outlive a test."""
    with servers.portal.wrap_async_context_manager(crew(realm.data_dir)) as members:
        for name in names:
            servers.portal.call(members.start, name)
        yield


KAFKA = pytest.mark.parametrize("servers", ["external" if KAFKA_BOOTSTRAP else "apache-kafka"], indirect=True, scope="session")
"""For what Tansu cannot show: positions that last, topics that go."""
