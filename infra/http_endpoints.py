"""`/livez`, `/readyz` and `/metrics` of a worker process, in its own event loop: one that is blocked answers nobody."""

import json
import socket
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

import anyio
import uvicorn

from infra.metrics import CONTENT_TYPE, Exposition
from infra.vitals import Vitals
from topics.errors import ConfigError

JSON: Final = "application/json"
STOPPED_WITHIN_S: Final = 3.0

Answer = tuple[int, str, bytes]


class Endpoints:
    """A plain ASGI application. Whoever may reach it learns nothing of what people wrote (P11)."""

    def __init__(self, vitals: Vitals, exposition: Exposition) -> None:
        self._vitals = vitals
        self._exposition = exposition

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer one request."""
        del receive
        if scope["type"] != "http":
            return
        status, content_type, body = self.answer(scope["method"], scope["path"])
        headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": [*headers, (b"cache-control", b"no-store")]})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    def answer(self, method: str, path: str) -> Answer:
        """Status, content type and body."""
        if method not in {"GET", "HEAD"}:
            return 405, JSON, _json({"error": "only GET"})
        match path:
            case "/livez":
                stalled = self._vitals.liveness()
                return 503 if stalled else 200, JSON, _json({"alive": not stalled, "stalled": stalled})
            case "/readyz":
                why = self._vitals.readiness()
                return 503 if why else 200, JSON, _json({"ready": not why, "why": why})
            case "/metrics":
                return 200, CONTENT_TYPE, self._exposition.text()
            case _:
                return 404, JSON, _json({"error": "there are /livez, /readyz and /metrics"})


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


class _Server(uvicorn.Server):
    """Signals are the worker's own: the first one drains, and we go on to say so meanwhile."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave them alone."""
        yield


def bind(host: str, port: int) -> socket.socket:
    """A listening place; port 0 is a free one.

    Raises:
        ConfigError: The address cannot be had.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"cannot listen on {host}:{port} ({error.strerror}): set SLUICE_HTTP_PORT and SLUICE_HTTP_HOST"
        ) from error
    return listener


async def serve(application: Any, listener: socket.socket) -> None:
    """Serve until cancelled."""
    config = uvicorn.Config(
        application,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
        limit_concurrency=64,
        timeout_graceful_shutdown=1,
        server_header=False,
    )
    server = _Server(config)
    try:
        await server.serve([listener])
    finally:
        with anyio.move_on_after(STOPPED_WITHIN_S, shield=True):
            if server.started:
                await server.shutdown([listener])
        listener.close()
