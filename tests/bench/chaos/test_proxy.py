"""The bad network: each weather does to a connection what it says, and fair weather follows."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import SocketStream

from bench.chaos import proxy as network
from bench.chaos.proxy import Proxy, proxied
from infra.local.ports import HOST, free_port


async def echo(stream: SocketStream) -> None:
    async with stream:
        try:
            while True:
                await stream.send(await stream.receive())
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            return


@asynccontextmanager
async def behind_a_proxy() -> AsyncGenerator[Proxy]:
    """A proxy before a server that says what it hears."""
    proxy = Proxy(free_port())
    listener = await anyio.create_tcp_listener(local_host=HOST, local_port=proxy.target_port)
    async with listener, anyio.create_task_group() as tasks, proxied(proxy):
        tasks.start_soon(listener.serve, echo)
        try:
            yield proxy
        finally:
            tasks.cancel_scope.cancel()


async def connected(proxy: Proxy) -> SocketStream:
    with anyio.fail_after(5):
        while True:
            try:
                return await anyio.connect_tcp(HOST, proxy.port)
            except OSError:
                await anyio.sleep(0.01)


async def says(stream: SocketStream, data: bytes) -> bytes:
    await stream.send(data)
    with anyio.fail_after(5):
        return await stream.receive()


async def ends(stream: SocketStream) -> bool:
    """Whether the other side ends the connection."""
    with anyio.fail_after(5):
        try:
            await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return True
    return False


async def test_in_fair_weather_everything_passes_both_ways() -> None:
    async with behind_a_proxy() as proxy, await connected(proxy) as stream:
        assert await says(stream, b"hello") == b"hello"


async def test_a_cut_ends_connections_and_refuses_new_ones_until_it_is_fair_again() -> None:
    async with behind_a_proxy() as proxy:
        async with await connected(proxy) as stream:
            await says(stream, b"hello")
            await proxy.change("cut")
            assert await ends(stream)
        async with await connected(proxy) as refused:
            assert await ends(refused)
        await proxy.change("fair")
        async with await connected(proxy) as stream:
            assert await says(stream, b"again") == b"again"


async def test_a_black_hole_keeps_the_connection_and_swallows_what_is_said() -> None:
    async with behind_a_proxy() as proxy, await connected(proxy) as stream:
        await says(stream, b"hello")
        await proxy.change("black_hole")
        await stream.send(b"lost")
        with anyio.move_on_after(0.3) as patience:
            await stream.receive()
        assert patience.cancelled_caught
        await proxy.change("fair")
        assert await ends(stream)


async def test_a_reset_ends_what_is_there_and_welcomes_what_comes() -> None:
    async with behind_a_proxy() as proxy:
        async with await connected(proxy) as stream:
            await says(stream, b"hello")
            await proxy.reset()
            assert await ends(stream)
        async with await connected(proxy) as stream:
            assert await says(stream, b"again") == b"again"


async def test_bad_weather_is_slow_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "LATENCY_S", 0.01)
    monkeypatch.setattr(network, "TRICKLE_BYTES_PER_S", 100_000)
    async with behind_a_proxy() as proxy, await connected(proxy) as stream:
        for weather in ("latency", "trickle"):
            await proxy.change(weather)
            assert await says(stream, weather.encode()) == weather.encode()
