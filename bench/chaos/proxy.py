"""A TCP proxy that can be a bad network: cut, a black hole, resets, latency, a trickle."""

import socket
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Literal

import anyio
from anyio.abc import SocketAttribute, SocketStream

from infra.local.ports import HOST, free_port

Weather = Literal["fair", "cut", "black_hole", "latency", "trickle"]

LATENCY_S: Final = 0.2
TRICKLE_BYTES_PER_S: Final = 1024
CHUNK_BYTES: Final = 65_536
RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


@dataclass(slots=True)
class Proxy:
    """Forwards `port` to `target_port`, as the weather lets it.

    `cut` refuses and closes; `black_hole` accepts and says nothing, in both directions, what was under way is lost; `latency`
    adds 200 ms each way; `trickle` lets 1 KiB/s through.
    """

    target_port: int
    port: int = field(default_factory=free_port)
    weather: Weather = "fair"
    _open: set[SocketStream] = field(default_factory=set[SocketStream])

    async def change(self, weather: Weather) -> None:
        """Change the weather. Connections that saw a cut or a black hole are closed: TCP would have told them late, or never."""
        spoiled = weather == "cut" or self.weather == "black_hole"
        self.weather = weather
        if spoiled:
            await self._close_all()

    async def reset(self) -> None:
        """End every connection by RST; new ones are welcome."""
        for stream in self._open:
            stream.extra(SocketAttribute.raw_socket).setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)  # noqa: S610 -- of anyio
        await self._close_all()

    async def _close_all(self) -> None:
        for stream in list(self._open):
            await stream.aclose()

    async def serve(self) -> None:
        """Forward until cancelled."""
        async with await anyio.create_tcp_listener(local_host=HOST, local_port=self.port) as listener:
            await listener.serve(self._connect)

    async def _connect(self, near: SocketStream) -> None:
        async with near:
            if self.weather == "cut":
                return
            try:
                far = await anyio.connect_tcp(HOST, self.target_port)
            except OSError:
                return
            async with far, anyio.create_task_group() as tasks:
                self._open |= {near, far}
                try:
                    tasks.start_soon(self._forward, near, far, tasks.cancel_scope)
                    await self._forward(far, near, tasks.cancel_scope)
                finally:
                    self._open -= {near, far}

    async def _forward(self, source: SocketStream, sink: SocketStream, pair: anyio.CancelScope) -> None:
        try:
            while True:
                data = await source.receive(TRICKLE_BYTES_PER_S if self.weather == "trickle" else CHUNK_BYTES)
                await self._travel(len(data))
                if self.weather != "black_hole":
                    await sink.send(data)
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pair.cancel()

    async def _travel(self, size_bytes: int) -> None:
        if self.weather == "latency":
            await anyio.sleep(LATENCY_S)
        elif self.weather == "trickle":
            await anyio.sleep(size_bytes / TRICKLE_BYTES_PER_S)


@asynccontextmanager
async def proxied(*proxies: Proxy) -> AsyncGenerator[None]:
    """Run proxies for as long as the block runs."""
    async with anyio.create_task_group() as tasks:
        for proxy in proxies:
            tasks.start_soon(proxy.serve)
        try:
            yield
        finally:
            tasks.cancel_scope.cancel()
