"""The back office behind a port: as a process of its own, or inside a test."""

import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Final

import uvicorn

from infra.local.back_office.app import BackOffice
from infra.local.back_office.retail import OPERATIONS
from infra.local.back_office.store import Store
from infra.local.back_office.tables import Seed
from topics.errors import ConfigError

FILE_NAME: Final = "back_office.sqlite3"

# Longer than any client of ours keeps an idle connection: the side that reuses a connection must be the one that ends it.
KEEP_ALIVE_S: Final = 75


def open_store(folder: Path, *, seed: Seed) -> Store:
    """The shop's store in a folder, which is made when it is missing.

    Raises:
        ConfigError: The folder or the file cannot be used, or another process has the file.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"the back office cannot use {folder}: {error.strerror}") from error
    return Store(folder / FILE_NAME, seed=seed, operations=OPERATIONS)


def serve(folder: Path, *, seed: Seed, host: str, port: int) -> None:
    """Serve until a signal ends it."""
    # The server raises the signal again once it has shut down; Ctrl-C is no error here.
    with closing(open_store(folder, seed=seed)) as store, suppress(KeyboardInterrupt):
        uvicorn.Server(_config(store, host=host, port=port)).run()


@asynccontextmanager
async def running(folder: Path, *, seed: Seed, host: str = "127.0.0.1") -> AsyncGenerator[str]:
    """Serve on a free port inside this event loop, for as long as the block runs. Yields the base URL.

    Started and ended by hand instead of in a task: a test's fixture may end in another task than it began in, which no task
    group allows. What that leaves out is a `Date` header and the server's own signal handlers.
    """
    with closing(open_store(folder, seed=seed)) as store, _listener(host) as listener:
        config = _config(store, host=host, port=0)
        config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        await server.startup(sockets=[listener])
        try:
            yield f"http://{host}:{listener.getsockname()[1]}"
        finally:
            await server.shutdown(sockets=[listener])


def _listener(host: str) -> socket.socket:
    """A listening socket on a free port.

    asyncio turns Nagle's algorithm off only where a socket names its protocol, which `socket.create_server` does not do: each
    answer would take 40 ms.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.bind((host, 0))
        listener.listen(100)
    except OSError:
        listener.close()
        raise
    return listener


def _config(store: Store, *, host: str, port: int) -> uvicorn.Config:
    return uvicorn.Config(
        BackOffice(store),
        host=host,
        port=port,
        lifespan="off",
        ws="none",
        # Paths hold tenants and keys.
        access_log=False,
        log_level="warning",
        timeout_keep_alive=KEEP_ALIVE_S,
        # Calls that a fault delays must not hold the end up.
        timeout_graceful_shutdown=2,
    )
