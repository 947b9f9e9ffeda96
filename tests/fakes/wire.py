"""An HTTP server that answers with exact bytes: the witness for odd shapes on a provider's wire."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Reply:
    """One answer. `body` goes out in pieces of `piece` bytes, each `pause_s` after the one before; `stall` keeps silent after it.

    `cut` closes before its end.
    """

    body: bytes
    status: int = 200
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    piece: int = 0
    pause_s: float = 0.0
    stall: bool = False
    cut: bool = False

    def head(self) -> bytes:
        """Status line and headers. Without a length the end is the end of the connection."""
        lines = [f"HTTP/1.1 {self.status} X", f"content-type: {self.content_type}", "connection: close"]
        if self.content_type == "application/json":
            lines.append(f"content-length: {len(self.body) + (10 if self.cut else 0)}")
        elif self.cut:
            lines.append(f"content-length: {len(self.body) + 10}")
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


def json_reply(body: Any, **kwargs: Any) -> Reply:
    return Reply(json.dumps(body, ensure_ascii=False).encode(), **kwargs)


def sse_reply(events: Sequence[Any], *, done: bool = True, **kwargs: Any) -> Reply:
    lines = [f"data: {event if isinstance(event, str) else json.dumps(event, ensure_ascii=False)}\n\n" for event in events]
    return Reply("".join([*lines, "data: [DONE]\n\n"] if done else lines).encode(), content_type="text/event-stream", **kwargs)


@dataclass
class Wire:
    """`replies` are given in order, the last one for ever. `requests` are the JSON bodies that came; `connections` are open now."""

    url: str = ""
    replies: list[Reply] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    connections: int = 0

    def answer(self, *replies: Reply) -> None:
        self.replies[:] = replies

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection. A client that left is no error."""
        self.connections += 1
        with closing(writer):
            try:
                self.requests.append(await _read_json(reader))
                reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
                writer.write(reply.head())
                step = reply.piece or max(len(reply.body), 1)
                for start in range(0, len(reply.body), step):
                    await asyncio.sleep(reply.pause_s if start else 0)
                    writer.write(reply.body[start : start + step])
                    await writer.drain()
                if reply.stall:
                    await reader.read()
            except (ConnectionError, asyncio.IncompleteReadError):
                return
            finally:
                self.connections -= 1


async def _read_json(reader: asyncio.StreamReader) -> dict[str, Any]:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length"))
    return json.loads(await reader.readexactly(length))


@asynccontextmanager
async def wire() -> AsyncIterator[Wire]:
    """Serve on a free loopback port for as long as the block runs."""
    wire = Wire()
    server = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
    async with server:
        wire.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        yield wire
