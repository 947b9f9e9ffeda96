"""The product's own model server in a thread of this process."""

import time
from collections.abc import Generator
from contextlib import contextmanager

import anyio
import uvicorn
from anyio.from_thread import start_blocking_portal

from infra.local.model_server.__main__ import quiet_config
from infra.local.model_server.app import build_server
from infra.local.ports import HOST, free_port


@contextmanager
def serving() -> Generator[str]:
    """Its address, without `/v1`, for as long as the block runs."""
    port = free_port()
    server = uvicorn.Server(quiet_config(build_server(), host=HOST, port=port))
    with start_blocking_portal() as portal:
        running = portal.start_task_soon(server.serve)
        deadline = time.monotonic() + 30
        while not server.started and time.monotonic() < deadline and not running.done():
            portal.call(anyio.sleep, 0.01)
        yield f"http://{HOST}:{port}"
        server.should_exit = True
        running.result(timeout=10)
