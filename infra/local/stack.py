"""The whole stack on this machine: a broker, Redis, the model server and the back office, on free ports."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import anyio
import httpx

from infra.local.apache_kafka import KAFKA_VERSION, build_apache_kafka
from infra.local.folders import writable_folder
from infra.local.ports import HOST, port_or_free
from infra.local.processes import Server, ServerSpec, running
from infra.local.redis_server import build_redis
from infra.local.tansu import build_tansu
from topics.errors import HaltError

BROKER: Final = "broker"
REDIS: Final = "redis"
MODEL_SERVER: Final = "model-server"
BACK_OFFICE: Final = "back-office"

BrokerKind = Literal["tansu", "apache-kafka"]

# Where `python -m infra...` finds us, installed or not.
_IMPORT_ROOT: Final = Path(__file__).parents[2]
_HEALTH_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where everything answers.

    `broker` is `tansu`, `apache-kafka 4.x.y` or `external`. `model_base_url` ends in `/v1`. A server that was not wanted has
    an empty address.
    """

    kafka_bootstrap: str
    redis_url: str
    model_base_url: str
    back_office_url: str
    broker: str


class Stack:
    """The servers that run, by name: `broker`, `redis`, `model-server`, `back-office`."""

    def __init__(self, endpoints: Endpoints, servers: dict[str, Server]) -> None:
        self.endpoints = endpoints
        self._servers = servers

    @property
    def names(self) -> tuple[str, ...]:
        """The servers that are ours."""
        return tuple(self._servers)

    def pid_of(self, name: str) -> int:
        """The process id of a server, to see it or to kill it.

        Raises:
            HaltError: It is not ours, or not running.
        """
        return self._server(name).pid

    def log_path(self, name: str) -> Path:
        """Where a server writes its log.

        Raises:
            HaltError: It is not ours.
        """
        return self._server(name).spec.log_path

    async def restart_redis(self) -> None:
        """Kill Redis by SIGKILL, as a crash would, and start it again on the same port and data."""
        await self._server(REDIS).kill()
        await self._server(REDIS).start()

    async def stop_broker(self) -> None:
        """End the broker in order. Tansu forgets everything; Apache Kafka keeps it."""
        await self._server(BROKER).stop()

    async def start_broker(self) -> None:
        """Start the broker again on the same port."""
        await self._server(BROKER).start()

    async def wait_ended(self) -> str:
        """Wait until the first server ends, whoever ended it. Returns a sentence with the last line of its log."""
        sentences: list[str] = []
        async with anyio.create_task_group() as group:

            async def watch(server: Server) -> None:
                sentences.append(await server.wait_ended())
                group.cancel_scope.cancel()

            for server in self._servers.values():
                group.start_soon(watch, server)
        return sentences[0] if sentences else "no server is ours"

    def _server(self, name: str) -> Server:
        try:
            return self._servers[name]
        except KeyError:
            raise HaltError(f"{name} was not started here; ours are: {', '.join(self._servers) or 'none'}") from None


@asynccontextmanager
async def local_stack(
    *,
    data_dir: Path,
    broker: BrokerKind = "tansu",
    kafka_bootstrap: str | None = None,
    redis_url: str | None = None,
    cache_dir: Path | None = None,
    model_server: bool = True,
    back_office: bool = True,
    kafka_port: int | None = None,
    redis_port: int | None = None,
    model_port: int | None = None,
    back_office_port: int | None = None,
) -> AsyncGenerator[Stack]:
    """Run the stack for as long as the block runs. All of it is gone afterwards, even when this process is killed.

    Args:
        data_dir: Where data and logs go (`data_dir/logs`). Made if missing; kept afterwards.
        broker: Which one to start when `kafka_bootstrap` names none.
        kafka_bootstrap: A cluster that is up already: no broker is started.
        redis_url: A Redis that is up already, with search and JSON: none is started.
        cache_dir: Where Apache Kafka's artifacts are kept; a folder in the home folder when left out.
        model_server: Whether the model server is wanted.
        back_office: Whether the back office is wanted.
        kafka_port: As the other ports: free ones when left out.

    Raises:
        ConfigError: A wheel, Java or Maven is missing, a port is taken, a folder cannot be written, or a server did not start:
            one sentence, with what to change. Nothing is left running.
    """
    folder = writable_folder(data_dir, setting="data_dir")
    writable_folder(folder / "logs", setting="data_dir")
    servers: dict[str, Server] = {}
    broker_name = "external"
    if kafka_bootstrap is None and broker == "tansu":
        broker_name = "tansu"
        servers[BROKER], kafka_bootstrap = build_tansu(data_dir=folder, port=kafka_port, setting="kafka_port")
    elif kafka_bootstrap is None:
        broker_name = f"apache-kafka {KAFKA_VERSION}"
        servers[BROKER], kafka_bootstrap = build_apache_kafka(
            data_dir=folder, cache_dir=cache_dir, port=kafka_port, setting="kafka_port"
        )
    if redis_url is None:
        redis = build_redis(data_dir=folder, port=redis_port, setting="redis_port")
        servers[REDIS], redis_url = redis.server, redis.url
    model_url = back_office_url = ""
    if model_server:
        port = port_or_free(model_port, setting="model_port")
        servers[MODEL_SERVER], model_url = _build_http(MODEL_SERVER, port=port, data_dir=folder)
    if back_office:
        port = port_or_free(back_office_port, setting="back_office_port")
        own_data = writable_folder(folder / "back_office", setting="data_dir")
        servers[BACK_OFFICE], back_office_url = _build_http(
            BACK_OFFICE, "--data", str(own_data), port=port, data_dir=folder, lock_path=own_data / ".lock"
        )
    endpoints = Endpoints(
        kafka_bootstrap=kafka_bootstrap,
        redis_url=redis_url,
        model_base_url=f"{model_url}/v1" if model_url else "",
        back_office_url=back_office_url,
        broker=broker_name,
    )
    async with running(*servers.values()):
        yield Stack(endpoints, servers)


def _build_http(name: str, *arguments: str, port: int, data_dir: Path, lock_path: Path | None = None) -> tuple[Server, str]:
    """One of our own HTTP servers, and its address. Ready when `/healthz` answers 200."""
    module = f"infra.local.{name.replace('-', '_')}"
    url = f"http://{HOST}:{port}"

    async def probe() -> str | None:
        # Proxies of the environment are for elsewhere.
        async with httpx.AsyncClient(timeout=_HEALTH_TIMEOUT_S, trust_env=False) as client:
            try:
                answer = await client.get(f"{url}/healthz")
            except httpx.HTTPError as error:
                return f"{url}/healthz: {type(error).__name__} {error}"
        return None if answer.status_code == 200 else f"{url}/healthz answers {answer.status_code}"

    spec = ServerSpec(
        name=name,
        command=(sys.executable, "-m", module, "--host", HOST, "--port", str(port), *arguments),
        log_path=data_dir / "logs" / f"{name}.log",
        probe=probe,
        stop_grace_s=5.0,
        cwd=_IMPORT_ROOT,
        lock_path=lock_path,
    )
    return Server(spec), url
