"""Public web pages for a tool, and nothing else: no address of this machine, its network or its cloud is ever connected to.

A name is looked up, every answer is checked, and the connection goes to a checked address and not to the name: a server of names
that answers otherwise the second time cannot lead it elsewhere. Each redirect is checked as the first address was.
"""

import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio
import httpx

from topics.errors import RejectedError

MAX_REDIRECTS: Final = 3
MAX_PAGE_BYTES: Final = 1_000_000
MAX_URL_CHARS: Final = 2_048
LOOKUPS: Final = 2
PORTS: Final = {"http": 80, "https": 443}

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

# Addresses that carry another one, which a gateway may turn them into.
_CARRIERS: Final = tuple(ipaddress.ip_network(one) for one in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96"))


class PageRefusedError(RejectedError):
    """The page was not read. The text may be shown to a model; it names no address that was looked up."""

    code = "page_refused"


async def look_up(host: str, port: int) -> list[str]:
    """All addresses of a name, as the system knows them."""
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


def is_public(text: str) -> bool:
    """Whether an address is one of a single machine on the public network. What cannot be read is not."""
    try:
        address: Address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        elif any(address in network for network in _CARRIERS):
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


class PageFetcher:
    """Reads pages. One for a process; its owner closes it."""

    def __init__(self, *, resolve: Resolve = look_up, transport: httpx.AsyncBaseTransport | None = None) -> None:
        """Build it; nothing is connected to.

        Args:
            resolve: Where addresses of names come from.
            transport: What sends requests, to an address and never to a name.
        """
        self._resolve: Final = resolve
        # No connection is kept: one that was opened for a name must not serve another name of the same address.
        limits = httpx.Limits(max_keepalive_connections=0, max_connections=20)
        self._client = httpx.AsyncClient(transport=transport, limits=limits, trust_env=False, follow_redirects=False)

    async def aclose(self) -> None:
        """Close it."""
        await self._client.aclose()

    async def fetch(self, url: str, *, timeout_s: float) -> str:
        """Read a page's text.

        Args:
            url: Of `http` or `https`, at its usual port.
            timeout_s: Seconds for everything, redirects included.

        Raises:
            PageRefusedError: It is no public page, or could not be read. To an address that is not public nothing was sent.
        """
        try:
            with anyio.fail_after(timeout_s):
                return await self._follow(url)
        except TimeoutError as error:
            raise PageRefusedError("the page did not come in time") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise PageRefusedError("the page could not be read") from error

    async def _follow(self, url: str) -> str:
        target = _checked_url(url)
        for _ in range(MAX_REDIRECTS + 1):
            request = self._request(target, await self._checked_address(target))
            response = await self._client.send(request, stream=True)
            try:
                if not response.is_redirect:
                    return await _text_of(response)
                target = _checked_url(str(target.join(response.headers["location"])))
            finally:
                await response.aclose()
        raise PageRefusedError("the page leads from one address to the next")

    async def _checked_address(self, target: httpx.URL) -> str:
        """The address to connect to. Names are looked up more than once: one that changes its answer has something in mind."""
        answers: list[str] = []
        for _ in range(LOOKUPS):
            try:
                found = await self._resolve(target.host, PORTS[target.scheme])
            except (OSError, UnicodeError) as error:
                raise PageRefusedError("the name in the address is not known") from error
            answers += found
        if not answers or not all(is_public(answer) for answer in answers):
            raise PageRefusedError("the address is not a public one")
        return answers[0]

    def _request(self, target: httpx.URL, address: str) -> httpx.Request:
        headers = {"host": target.netloc.decode("ascii"), "accept": "text/*, application/json", "accept-encoding": "identity"}
        # The certificate is checked against the name, which the address alone would not tell.
        extensions = {"sni_hostname": target.raw_host.decode("ascii")}
        return self._client.build_request("GET", target.copy_with(host=address), headers=headers, extensions=extensions)


def _checked_url(url: str) -> httpx.URL:
    target = httpx.URL(url[: MAX_URL_CHARS + 1])
    plain = len(url) <= MAX_URL_CHARS and target.scheme in PORTS and target.host and not target.userinfo
    if not plain or target.port not in (None, PORTS[target.scheme]):
        raise PageRefusedError("only plain http and https addresses can be read")
    return target.copy_with(fragment=None)


async def _text_of(response: httpx.Response) -> str:
    kind = response.headers.get("content-type", "text/plain").partition(";")[0].strip().lower()
    if not response.is_success or not (kind.startswith("text/") or kind == "application/json"):
        raise PageRefusedError("there is no text at the address")
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if len(body) > MAX_PAGE_BYTES:
            raise PageRefusedError("the page is too large")
    return body.decode(response.charset_encoding or "utf-8", errors="replace")
