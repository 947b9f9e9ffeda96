"""Addresses that an answer may show: those that a tenant's own articles make known. Pure."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

MAX_URL_CHARS: Final = 2_048
_HOST: Final = re.compile(r"(?:https?|ftp)://(?P<host>[A-Za-z0-9.-]{1,253})(?::[0-9]{1,5})?(?=[/?#]|\Z)")
# All that a reader of links may take for a part of one, so that nothing behind a known host can make another host of it.
IN_URL: Final = r"[^\s<>\"⟨⟩]"
_SCHEME: Final = re.compile(r"[a-z]*://|www", re.IGNORECASE)
_URLS: Final = re.compile(rf"https?://{IN_URL}{{1,{MAX_URL_CHARS}}}")
TRAILING: Final = ".,;:!?*_~'`)]}|"


@dataclass(frozen=True, slots=True)
class Links:
    """Addresses that may be shown: all of some hosts (lower case), and some that are known as they are."""

    hosts: frozenset[str] = frozenset()
    urls: frozenset[str] = frozenset()

    def known_part(self, url: str) -> str:
        """What of an address may be shown at once: all of it, or its host, behind which it is text like any other; or nothing.

        An address whose host could be read in two ways is not known.
        """
        if url in self.urls:
            return url
        found = _HOST.match(url)
        return found.group() if found and found["host"].lower().rstrip(".") in self.hosts else ""


class _AnyLink(Links):
    """Every address is known; what stands in one is text like any other, so that a secret in it goes."""

    def known_part(self, url: str) -> str:
        found = _SCHEME.match(url)
        return found.group() if found else ""


NO_LINKS: Final = Links()
ANY_LINK: Final[Links] = _AnyLink()  # for text that a model reads: only secrets go


def links_of(addresses: Iterable[str | None], *, texts: Iterable[str] = (), hosts: Collection[str] = ()) -> Links:
    """What a tenant's own articles make known.

    Args:
        addresses: Where articles stand; everything else on their hosts is the tenant's too.
        texts: What articles say; a host that they only mention is not the tenant's, so of it no other address may be shown.
        hosts: Hosts that are known otherwise.
    """
    own = {_host_of(address) for address in addresses if address}
    known = {url.rstrip(TRAILING) for text in texts if "://" in text for url in _URLS.findall(text)}
    return Links(frozenset({host.lower() for host in hosts} | own - {""}), frozenset(known))


def _host_of(address: str) -> str:
    try:
        return (urlsplit(address).hostname or "").lower()
    except ValueError:
        return ""
