"""As much HTTP over ASGI as the server needs: read a body, answer with JSON, stream events."""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

import anyio
import orjson

AsgiMessage = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]


class NotJsonError(Exception):
    """The body is no JSON."""


async def read_body(receive: Receive) -> bytes:
    """The whole body of a request."""
    parts: list[bytes] = []
    more = True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = bool(message.get("more_body"))
    return b"".join(parts)


def parse(body: bytes) -> Any:
    """A body as JSON.

    Raises:
        NotJsonError: It is none.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise NotJsonError("we could not parse the JSON body of your request") from error


async def send_json(send: Send, value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
    """Answer with JSON; arrays of numpy are read as they are."""
    body = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    await send_start(
        send, status=status, headers={"content-type": "application/json", "content-length": str(len(body))} | dict(headers or {})
    )
    await send({"type": "http.response.body", "body": body})


async def send_start(send: Send, *, status: int, headers: Mapping[str, str]) -> None:
    """Send the status and the headers."""
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})


async def send_part(send: Send, body: bytes) -> None:
    """Send a part of a body; more follows."""
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def while_connected(receive: Receive, answer: Callable[[], Awaitable[None]]) -> None:
    """Answer for as long as the client stays."""
    async with anyio.create_task_group() as group:

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            group.cancel_scope.cancel()

        group.start_soon(watch)
        await answer()
        group.cancel_scope.cancel()


async def serve_lifespan(receive: Receive, send: Send) -> None:
    """Say yes to start and stop; there is nothing to do."""
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
