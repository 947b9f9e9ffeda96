"""Case 39: a page is read from the public network or not at all, whatever its address looks like and wherever it leads."""

import ipaddress
import socket
from collections import deque

import anyio
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra import http_fetch
from infra.http_fetch import MAX_PAGE_BYTES, MAX_REDIRECTS, PageFetcher, PageRefusedError, is_public, look_up

PUBLIC = "93.184.215.14"
OTHER = "2606:2800:21f:cb07:6820:80da:af6b:8b2c"


class Net:
    """Names with their answers, one lookup after the other, and what is sent to which address."""

    def __init__(self, names: dict[str, list[list[str]]], pages: dict[str, httpx.Response] | None = None) -> None:
        self.names = {name: deque(answers) for name, answers in names.items()}
        self.pages = pages or {}
        self.sent: list[str] = []
        self.asked: list[httpx.Request] = []

    async def resolve(self, host: str, port: int) -> list[str]:
        answers = self.names.get(host)
        if answers is None:
            return await look_up(host, port)  # numbers, in whatever spelling, as the system reads them
        return answers.popleft() if len(answers) > 1 else answers[0]

    def handle(self, request: httpx.Request) -> httpx.Response:
        self.sent.append(request.url.host)
        self.asked.append(request)
        return self.pages.get(f"{request.headers['host']}{request.url.path}") or httpx.Response(200, text="Hello.")

    async def fetch(self, url: str) -> str:
        fetcher = PageFetcher(resolve=self.resolve, transport=httpx.MockTransport(self.handle))
        try:
            return await fetcher.fetch(url, timeout_s=5.0)
        finally:
            await fetcher.aclose()


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://[::ffff:169.254.169.254]/",
        "http://2130706433/",
        "http://0/",
        "file:///etc/passwd",
        "http://rebind.example/",
        "http://127.1/",
        "http://0x7f.0.0.1/",
        "http://[::1]/",
        "http://[::]/",
        "http://[fe80::1%25lo]/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://[2002:7f00:1::]/",
        "http://localhost/",
        "http://public.example@127.0.0.1/",
        "http://127.0.0.1#@public.example/",
        "http://user:pw@public.example/",
        "http://public.example:22/",
        "http://mixed.example/",
        "http://silent.example/",
        "gopher://public.example/",
        "//public.example/",
        "http:///x",
        "not an address",
        "",
        "http://public.example/" + "a" * 3_000,
    ],
)
async def test_what_is_not_public_is_refused_and_nothing_is_connected_to(url: str):
    net = Net(
        {
            "public.example": [[PUBLIC]],
            "rebind.example": [[PUBLIC], ["10.0.0.5"]],
            "mixed.example": [[PUBLIC, "10.0.0.5"]],
            "silent.example": [[]],
        }
    )
    with pytest.raises(PageRefusedError) as refused:
        await net.fetch(url)
    assert net.sent == []
    assert not [part for part in ("10.0.0.5", "127.0.0.1", "169.254") if part in str(refused.value)]


@pytest.mark.parametrize(
    "location", ["http://127.0.0.1/", "//127.0.0.1/admin", "http://2130706433/", "https://inner.example/", "file:///etc/passwd"]
)
async def test_a_public_page_that_leads_inside_is_left_at_its_door(location: str):
    pages = {"public.example/": httpx.Response(302, headers={"location": location})}
    net = Net({"public.example": [[PUBLIC]], "inner.example": [["192.168.1.1"]]}, pages)
    with pytest.raises(PageRefusedError):
        await net.fetch("http://public.example/")
    assert net.sent == [PUBLIC]


async def test_a_public_page_is_read_from_the_address_that_was_checked_under_its_own_name():
    net = Net({"public.example": [[PUBLIC], [PUBLIC], ["10.0.0.5"]]})
    assert await net.fetch("https://public.example/a?b=c#d") == "Hello."
    assert net.sent == [PUBLIC]
    (asked,) = net.asked
    assert (asked.headers["host"], asked.url.raw_path) == ("public.example", b"/a?b=c")
    assert asked.extensions["sni_hostname"] == "public.example"


async def test_a_redirect_to_another_public_page_is_followed_and_a_ring_is_not():
    pages = {
        "a.example/": httpx.Response(301, headers={"location": "https://b.example/x"}),
        "ring.example/": httpx.Response(302, headers={"location": "/"}),
    }
    net = Net({"a.example": [[PUBLIC]], "b.example": [[OTHER]], "ring.example": [[PUBLIC]]}, pages)
    assert await net.fetch("http://a.example/") == "Hello."
    assert net.sent == [PUBLIC, OTHER]
    net.sent.clear()
    with pytest.raises(PageRefusedError):
        await net.fetch("http://ring.example/")
    assert net.sent == [PUBLIC] * (MAX_REDIRECTS + 1)


@pytest.mark.parametrize(
    "page",
    [
        httpx.Response(200, content=b"x" * (MAX_PAGE_BYTES + 1), headers={"content-type": "text/plain"}),
        httpx.Response(200, content=b"\x89PNG", headers={"content-type": "image/png"}),
        httpx.Response(500, text="secret trace"),
    ],
    ids=["too large", "no text", "an error"],
)
async def test_what_is_no_page_is_refused(page: httpx.Response):
    net = Net({"public.example": [[PUBLIC]]}, {"public.example/": page})
    with pytest.raises(PageRefusedError) as refused:
        await net.fetch("http://public.example/")
    assert "secret" not in str(refused.value)


async def test_a_real_server_on_this_machine_sees_no_connection(monkeypatch: pytest.MonkeyPatch):
    """The socket itself, with no transport in its place."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        # Else its port alone would be refused.
        monkeypatch.setitem(http_fetch.PORTS, "http", server.getsockname()[1])
        fetcher = PageFetcher()
        try:
            for host in ("127.0.0.1", "2130706433", "localhost", "[::ffff:127.0.0.1]"):
                with pytest.raises(PageRefusedError):
                    await fetcher.fetch(f"http://{host}/", timeout_s=5.0)
        finally:
            await fetcher.aclose()
        with pytest.raises(BlockingIOError):
            server.accept()


async def test_a_page_that_never_comes_is_given_up():
    async def never(_host: str, _port: int) -> list[str]:
        await anyio.sleep_forever()
        return []

    fetcher = PageFetcher(resolve=never)
    with pytest.raises(PageRefusedError):
        await fetcher.fetch("http://public.example/", timeout_s=0.01)
    await fetcher.aclose()


@given(st.ip_addresses())
def test_an_address_is_public_only_where_the_registry_says_so_and_no_other_is_inside_it(address):
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    if is_public(str(address)):
        assert (mapped or address).is_global
    if isinstance(address, ipaddress.IPv4Address):
        assert is_public(f"::ffff:{address}") == is_public(str(address))
        assert not is_public(f"64:ff9b::{address}")
        assert not is_public(f"::{address}")
