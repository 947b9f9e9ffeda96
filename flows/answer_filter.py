"""What of a model's text may be shown: no secret, and no address that is not the tenant's own. Pure.

Text comes in pieces and leaves in pieces: what is shown depends on the whole text and never on where it was cut. Only a tail that
may still become something else is held back, `MAX_HELD_CHARS` at most: the start of a secret or an address, and an emoji that the
next piece may join.
"""

import re
from collections.abc import AsyncIterator, Iterator
from typing import Final

from langchain_core.messages import AIMessage, AIMessageChunk

from flows import secret_forms
from flows.links import ANY_LINK, IN_URL, MAX_URL_CHARS, NO_LINKS, TRAILING, Links
from flows.streaming import TextCleaner, storable_text, text_of

SECRET: Final = "⟨secret removed⟩"  # noqa: S105 -- what stands in the place of one; no brackets, they could make a link of what follows
LINK: Final = "⟨link removed⟩"
MAX_HELD_CHARS: Final = MAX_URL_CHARS + 64
EMOJI_RUN: Final = 32

_URL: Final = rf"(?i:https?://|ftp://|www\.){IN_URL}{{0,{MAX_URL_CHARS}}}"
_URL_START: Final = r"(?i:h(?:t(?:t(?:p(?:s?(?::/?)?)?)?)?)?|f(?:t(?:p(?::/?)?)?)?|w(?:ww?)?)\Z"
_ODD_URL: Final = rf"://{IN_URL}{{0,{MAX_URL_CHARS}}}"
_ODD_URL_START: Final = r":/?\Z"
_TARGET: Final = r"\][(:]"  # of a link, or of the definition that links and images elsewhere refer to
_TARGET_START: Final = r"\]\Z"
_NEVER: Final = -1
_DEEPEST: Final = 32  # brackets in a target, one within another; readers of Markdown take no more
_SLICE: Final = 4 * MAX_HELD_CHARS
# Pictographs and what joins or varies them. Never longer than the longest cluster in use.
_EMOJI: Final = "[\u200d\u20e3\ufe0f\u2190-\u21ff\u2300-\u27bf\u2934\u2935\u2b00-\u2bff\U0001f000-\U0001faff\U000e0020-\U000e007f]"
_EMOJI_START: Final = rf"{_EMOJI}{{1,{EMOJI_RUN}}}\Z"

# Words end before a secret or an address begins; `://` alone is the door for what glues itself to a word.
_ALONE: Final = "(?<![A-Za-z0-9_])"
_WHOLES: Final = {
    **{name: _ALONE + secret.whole() for name, secret in secret_forms.SECRETS.items()},
    "pem": secret_forms.PEM,
    "card": _ALONE + secret_forms.CARD,
    "url": _ALONE + _URL,
    "odd": _ODD_URL,
    "target": _TARGET,
}
_STARTS: Final = (
    *(_ALONE + secret.start() for secret in secret_forms.SECRETS.values()),
    secret_forms.PEM_START,
    _ALONE + secret_forms.CARD_START,
    _ALONE + _URL_START,
    _ODD_URL_START,
    _TARGET_START,
    _EMOJI_START,
)
_AT_END: Final = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _WHOLES.items()))
_UNDERWAY: Final = re.compile(f"{_AT_END.pattern}|(?P<start>{'|'.join(_STARTS)})")
_RESTS: Final = {name: re.compile(f"{secret.rest}*") for name, secret in secret_forms.SECRETS.items()}
_REST_OF_URL: Final = re.compile(f"{IN_URL}*")


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
        if self._skip is secret_forms.PEM_END:
            found = secret_forms.PEM_END.search(self._text, self._at)
            end = found.end() if found else len(self._text) if is_last else max(self._at, len(self._text) - secret_forms.PEM_TAIL)
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
                return self._links is not ANY_LINK and found.group() == "](" and _closing(text, end) is None
            case "card":
                return bool(secret_forms.CARD_GOES_ON.match(text, end)) and end - found.start() < 2 * secret_forms.CARD_DIGITS.stop
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
                self._skip = secret_forms.PEM_END if kind == "pem" else _RESTS[kind]
                return SECRET

    def _address(self, found: re.Match[str]) -> str:
        url = found.group().rstrip(TRAILING)
        if known := self._links.known_part(url):
            return self._upto(found.start() + len(known))
        if len(found.group()) >= MAX_URL_CHARS:
            self._removed(found.end())
            self._skip = _REST_OF_URL
        else:
            self._removed(found.start() + max(len(url), 1))
        return LINK

    def _target(self, found: re.Match[str]) -> str:
        if self._links is ANY_LINK:
            return self._upto(found.end())
        if found.group() == "]:":
            self._at = found.end() - 1  # an address may begin with the colon
            return "] "  # which defines nothing then: in how many ways its address can be spelled is for its reader to know
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
            if len(digits) in secret_forms.CARD_DIGITS and secret_forms.is_card_number(digits):
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
        if depth > _DEEPEST:
            return _NEVER
    return _NEVER if len(text) - begin >= MAX_URL_CHARS else None


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
    whole, text = AnswerFilter(links), storable_text(text)
    # Each secret that goes copies what is left of its slice.
    shown = [whole.feed(text[at : at + _SLICE]) for at in range(0, len(text), _SLICE)]
    return "".join([*shown, whole.flush()])


def without_secrets(text: str) -> str:
    """A whole text as a model may read it: storable and without secrets, its addresses as they are."""
    text = storable_text(text)
    # Most texts have nothing that begins like a secret, and the filter takes a millisecond for a page.
    return shown_text(text, ANY_LINK) if secret_forms.HINT.search(text) else text


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
