"""What of a model's text may be shown: no secret, and no address that is not the tenant's own. Pure.

Text comes in pieces and leaves in pieces: what is shown depends on the whole text and never on where it was cut. Only a tail that
may still become something else is held back, `MAX_HELD_CHARS` at most: the start of a secret or an address, and an emoji that the
next piece may join.
"""

import re
from collections.abc import AsyncIterator, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.runnables import RunnableGenerator

from flows.streaming import TextCleaner, storable_text, text_of

SECRET: Final = "⟨secret removed⟩"  # noqa: S105 -- what stands in the place of one; no brackets, they could make a link of what follows
LINK: Final = "⟨link removed⟩"
MAX_URL_CHARS: Final = 2_048
MAX_HELD_CHARS: Final = MAX_URL_CHARS + 64
EMOJI_RUN: Final = 32

_HOST: Final = re.compile(r"(?:https?|ftp)://(?P<host>[A-Za-z0-9.-]{1,253})(?::[0-9]{1,5})?(?=[/?#]|\Z)")
# All that a reader of links may take for a part of one, so that nothing behind a known host can make another host of it.
_IN_URL: Final = r"[^\s<>\"⟨⟩]"
_URLS: Final = re.compile(rf"https?://{_IN_URL}{{1,{MAX_URL_CHARS}}}")
_TRAILING: Final = ".,;:!?*_~'`)]}|"


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
    """Every address is known."""

    def known_part(self, url: str) -> str:
        return url


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
    known = {url.rstrip(_TRAILING) for text in texts if "://" in text for url in _URLS.findall(text)}
    return Links(frozenset({host.lower() for host in hosts} | own - {""}), frozenset(known))


def _host_of(address: str) -> str:
    try:
        return (urlsplit(address).hostname or "").lower()
    except ValueError:
        return ""


def _prefixes(*parts: str, last: str = "") -> str:
    """A pattern of everything that a text of these parts may begin with, at the end of the text."""
    pattern = last
    for part in reversed(parts):
        pattern = f"{part}(?:{pattern})?" if pattern else part
    return rf"{pattern}\Z"


@dataclass(frozen=True, slots=True)
class _Secret:
    """`parts` and `least` characters of `chars` give one away; `rest` goes with it."""

    parts: tuple[str, ...]
    chars: str
    least: int
    rest: str

    def whole(self) -> str:
        return f"{''.join(self.parts)}{self.chars}{{{self.least}}}"

    def start(self) -> str:
        return _prefixes(*self.parts, last=f"{self.chars}{{0,{self.least - 1}}}")


_KEY: Final = "[A-Za-z0-9_-]"
_TOKEN: Final = r"[A-Za-z0-9._~+/=-]"  # noqa: S105 -- characters
_SECRETS: Final = {
    "sk": _Secret(("s", "k", "[-_]"), _KEY, 16, _KEY),
    "aws": _Secret(("A", "[KS]", "I", "A"), "[0-9A-Z]", 16, "[0-9A-Z]"),
    "google": _Secret(("A", "I", "z", "a"), _KEY, 30, _KEY),
    "github": _Secret(("g", "h", "[pousr]", "_"), "[A-Za-z0-9]", 20, "[A-Za-z0-9]"),
    "pat": _Secret(tuple("github_pat_"), _KEY, 20, _KEY),
    "slack": _Secret(("x", "o", "x", "[abeprs]", "-"), _KEY, 10, _KEY),
    "bearer": _Secret(("[Bb]", "[Ee]", "[Aa]", "[Rr]", "[Ee]", "[Rr]", " "), _TOKEN, 20, _TOKEN),
    # Two letters and a brace in base64: whatever it signs, it is a JSON object that was not meant to be read.
    "jwt": _Secret(("e", "y", "J"), _KEY, 17, r"[A-Za-z0-9_.=-]"),
}
_PEM: Final = "-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----"
_PEM_END: Final = re.compile("-----END [A-Z0-9 ]{0,40}-----")
_PEM_TAIL: Final = 64
_PEM_START: Final = _prefixes("-", "-", "-", "-", "-", "B", "E", "G", "I", "N", " ", last="[A-Z0-9 ]{0,48}-{0,4}")
_CARD: Final = "[2-6](?:[ -]?[0-9]){12,30}"
_CARD_START: Final = r"[2-6](?:[ -]?[0-9]){0,30}[ -]?\Z"
_CARD_ON: Final = re.compile(r"[ -]?\Z")
_CARD_DIGITS: Final = range(13, 20)
_URL: Final = rf"(?i:https?://|ftp://|www\.){_IN_URL}{{0,{MAX_URL_CHARS}}}"
_URL_START: Final = r"(?i:h(?:t(?:t(?:p(?:s?(?::/?)?)?)?)?)?|f(?:t(?:p(?::/?)?)?)?|w(?:ww?)?)\Z"
_ODD_URL: Final = rf"://{_IN_URL}{{0,{MAX_URL_CHARS}}}"
_ODD_URL_START: Final = r":/?\Z"
_TARGET: Final = r"\]\("
_TARGET_START: Final = r"\]\Z"
_NEVER: Final = -1
# Pictographs and what joins or varies them. Never longer than the longest cluster in use.
_EMOJI: Final = "[\u200d\u20e3\ufe0f\u2190-\u21ff\u2300-\u27bf\u2934\u2935\u2b00-\u2bff\U0001f000-\U0001faff\U000e0020-\U000e007f]"
_EMOJI_START: Final = rf"{_EMOJI}{{1,{EMOJI_RUN}}}\Z"

# Words end before a secret or an address begins; `://` alone is the door for what glues itself to a word.
_ALONE: Final = "(?<![A-Za-z0-9_])"
_WHOLES: Final = {
    **{name: _ALONE + secret.whole() for name, secret in _SECRETS.items()},
    "pem": _PEM,
    "card": _ALONE + _CARD,
    "url": _ALONE + _URL,
    "odd": _ODD_URL,
    "target": _TARGET,
}
_STARTS: Final = (
    *(_ALONE + secret.start() for secret in _SECRETS.values()),
    _PEM_START,
    _ALONE + _CARD_START,
    _ALONE + _URL_START,
    _ODD_URL_START,
    _TARGET_START,
    _EMOJI_START,
)
_AT_END: Final = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _WHOLES.items()))
_UNDERWAY: Final = re.compile(f"{_AT_END.pattern}|(?P<start>{'|'.join(_STARTS)})")
_HINT: Final = re.compile("|".join((*("".join(secret.parts) for secret in _SECRETS.values()), "-----BEGIN", _CARD)))
_RESTS: Final = {name: re.compile(f"{secret.rest}*") for name, secret in _SECRETS.items()}
_REST_OF_URL: Final = re.compile(f"{_IN_URL}*")


class AnswerFilter:
    """`filtered` for text that comes in pieces: the joined results are the result of the joined pieces."""

    def __init__(self, links: Links = NO_LINKS) -> None:
        self._links = links
        self._text = ""
        self._at = 0
        self._skip: re.Pattern[str] | None = None

    def feed(self, piece: str) -> str:
        """Give what of the text may be shown by now."""
        self._text += piece
        shown = "".join(self._advance(is_last=False))
        # One character before the place is kept: whether a word begins there depends on it.
        begin = max(self._at - 1, 0)
        self._text, self._at = self._text[begin:], self._at - begin
        return shown

    def flush(self) -> str:
        """Give what is left, at the end of the text."""
        return "".join(self._advance(is_last=True))

    def _advance(self, *, is_last: bool) -> Iterator[str]:
        pattern = _AT_END if is_last else _UNDERWAY
        while self._passed(is_last=is_last) and self._at < len(self._text):
            found = pattern.search(self._text, self._at)
            if found is None:
                yield self._upto(len(self._text))
                return
            yield self._upto(found.start())
            kind = found.lastgroup or ""
            if not is_last and (kind == "start" or self._may_go_on(kind, found)):
                return
            yield self._replaced(kind, found)

    def _removed(self, end: int) -> None:
        """Go on at `end`, where a word may begin whatever was removed before it."""
        self._text, self._at = LINK[-1] + self._text[end:], 1

    def _upto(self, end: int) -> str:
        begin, self._at = self._at, end
        return self._text[begin:end]

    def _passed(self, *, is_last: bool) -> bool:
        """Pass over what goes with something removed. False when its end has not come yet."""
        if self._skip is None:
            return True
        if self._skip is _PEM_END:
            found = _PEM_END.search(self._text, self._at)
            end = found.end() if found else len(self._text) if is_last else max(self._at, len(self._text) - _PEM_TAIL)
            ended = found is not None
        else:
            rest = self._skip.match(self._text, self._at)
            end = rest.end() if rest else self._at
            ended = end < len(self._text)
        self._removed(end)
        if ended:
            self._skip = None
        return ended

    def _may_go_on(self, kind: str, found: re.Match[str]) -> bool:
        """Whether more text may make more of what was found."""
        end, text = found.end(), self._text
        match kind:
            case "url" | "odd":
                return end == len(text) and end - found.start() < MAX_URL_CHARS
            case "target":
                return _closing(text, end) is None
            case "card":
                return bool(_CARD_ON.match(text, end)) and end - found.start() < 2 * _CARD_DIGITS.stop
            case _:
                return False

    def _replaced(self, kind: str, found: re.Match[str]) -> str:
        """What is shown in the place of what was found; how far it goes is passed over."""
        match kind:
            case "url" | "odd":
                return self._address(found)
            case "target":
                return self._target(found)
            case "card":
                return self._card(found)
            case _:
                self._removed(found.end())
                self._skip = _PEM_END if kind == "pem" else _RESTS[kind]
                return SECRET

    def _address(self, found: re.Match[str]) -> str:
        url = found.group().rstrip(_TRAILING)
        if known := self._links.known_part(url):
            return self._upto(found.start() + len(known))
        if len(found.group()) >= MAX_URL_CHARS:
            self._removed(found.end())
            self._skip = _REST_OF_URL
        else:
            self._removed(found.start() + max(len(url), 1))
        return LINK

    def _target(self, found: re.Match[str]) -> str:
        close = _closing(self._text, found.end()) or _NEVER
        if close == _NEVER:
            self._at = found.end()
            return "] ("  # no link any more, wherever it ends
        url = next(iter(self._text[found.end() : close].split()), "").strip("<>")
        if known := self._links.known_part(url):
            return self._upto(self._text.index(url, found.end()) + len(known))
        self._text, self._at = "]" + self._text[close + 1 :], 0  # which what follows may make a link of again
        return ""

    def _card(self, found: re.Match[str]) -> str:
        """Remove the longest card number that begins here and ends where a group of digits ends."""
        run = found.group()
        ends = [place for place in range(1, len(run) + 1) if run[place - 1].isdigit() and not run[place : place + 1].isdigit()]
        for end in reversed(ends):
            digits = re.sub("[ -]", "", run[:end])
            if len(digits) in _CARD_DIGITS and is_card_number(digits):
                self._removed(found.start() + end)
                return SECRET
        return self._upto(found.start() + ends[0])


def _closing(text: str, begin: int) -> int | None:
    """Where the bracket before `begin` is closed, as Markdown takes it: on its line. None when the text ends before that."""
    depth = 1
    for place in range(begin, min(len(text), begin + MAX_URL_CHARS)):
        if text[place] == "\n":
            return _NEVER
        depth += (text[place] == "(") - (text[place] == ")")
        if depth == 0:
            return place
    return _NEVER if len(text) - begin >= MAX_URL_CHARS else None


def is_card_number(digits: str) -> bool:
    """Whether the last digit is the check digit of the others. Source: ISO/IEC 7812-1, annex B."""
    doubled = [int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(digits))]
    return sum(number - 9 if number > 9 else number for number in doubled) % 10 == 0


class ShownText:
    """A model's text, made storable and fit to be shown, piece by piece."""

    def __init__(self, links: Links = NO_LINKS) -> None:
        self._cleaner = TextCleaner()
        self._filter = AnswerFilter(links)

    def feed(self, piece: str) -> str:
        """Give what may be shown by now."""
        return self._filter.feed(self._cleaner.feed(piece))

    def flush(self) -> str:
        """Give what is left, at the end of the text."""
        return self._filter.feed(self._cleaner.flush()) + self._filter.flush()


def shown_text(text: str, links: Links = NO_LINKS) -> str:
    """A whole text as it may be shown: storable, without secrets and without addresses that are not known."""
    whole = AnswerFilter(links)
    return whole.feed(storable_text(text)) + whole.flush()


def without_secrets(text: str) -> str:
    """A whole text as a model may read it: storable and without secrets, its addresses as they are."""
    text = storable_text(text)
    # Most texts have nothing that begins like a secret, and the filter takes a millisecond for a page.
    return shown_text(text, ANY_LINK) if _HINT.search(text) else text


async def shown_chunks(chunks: AsyncIterator[AIMessage], *, links: Links = NO_LINKS) -> AsyncIterator[AIMessageChunk]:
    """A model's chunks with only what may be shown as their text. What was held back comes in a chunk of its own."""
    text, last_id = ShownText(links), None
    async for chunk in chunks:
        last_id, piece = chunk.id, text.feed(text_of(chunk))
        if isinstance(chunk, AIMessageChunk):
            yield chunk.model_copy(update={"content": piece})
        else:  # a whole message, as a chain that does not stream gives it: only chunks can be added up
            yield AIMessageChunk.model_validate({**chunk.model_dump(exclude={"type"}), "content": piece})
    if rest := text.flush():
        yield AIMessageChunk(content=rest, id=last_id)


def shown_step(links: Links = NO_LINKS) -> RunnableGenerator[AIMessage, AIMessageChunk]:
    """`shown_chunks` as a step of a chain: it streams, where a function in its place would wait for the whole text."""

    async def show(chunks: AsyncIterator[AIMessage]) -> AsyncIterator[AIMessageChunk]:
        async for chunk in shown_chunks(chunks, links=links):
            yield chunk

    return RunnableGenerator(show)
