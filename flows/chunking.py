"""Cut an article into passages: by headings first, then paragraphs, lines, sentences, words. Nothing is cut inside a character.

A pure function: the same article gives the same passages, so a re-run writes the same index.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from html.parser import HTMLParser
from typing import Final

from langchain_core.messages import HumanMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_text_splitters import RecursiveCharacterTextSplitter

PASSAGE_TOKENS: Final = 220
OVERLAP_TOKENS: Final = 24
PATH_SEPARATOR: Final = " > "

# Characters that belong to the one before them: marks, joiners, variation selectors, skin tones, tags, Hangul vowels and tails.
_EXTEND: Final = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc"
    "\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u0900-\u0903\u093a-\u094f\u0951-\u0957\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u1160-\u11ff"
    "\u1ab0-\u1aff\u1dc0-\u1dff\u200c\u200d\u20d0-\u20f0\u302a-\u302f\u3099\u309a\ufe00-\ufe0f\ufe20-\ufe2f"
    "\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f\U000e0100-\U000e01ef"
)
_FLAG: Final = "\U0001f1e6-\U0001f1ff"
_WHOLE: Final = f"(?![{_EXTEND}])"
_INSIDE_FLAGS: Final = f"(?<![{_FLAG}](?=[{_FLAG}]))"
_SEPARATORS: Final = (
    rf"\n\s*\n{_WHOLE}",
    rf"\n{_WHOLE}",
    rf"(?<=[.!?。！？])\s+{_WHOLE}",  # noqa: RUF001 - full stops of other scripts
    rf"\s{_WHOLE}",
    rf"(?<=[^\u200d]){_INSIDE_FLAGS}{_WHOLE}",
)
_HEADING: Final = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.+?)[ \t]*#*$")
_FENCE: Final = re.compile(r"^ {0,3}(```|~~~)")
_HTML: Final = re.compile(r"<(?:p|br|h[1-6]|div|li|ul|ol|table|tr|section|article|body)\b[^<>]*>", re.IGNORECASE)
_WIDE: Final = re.compile(r"[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U0001f000-\U0003ffff]")


@dataclass(frozen=True, slots=True)
class Piece:
    """A passage before it has an article. `title_path` leads from the article's title to the heading above the text."""

    ordinal: int
    title_path: str
    text: str


def chunk(title: str, body: str, *, passage_tokens: int = PASSAGE_TOKENS, overlap_tokens: int = OVERLAP_TOKENS) -> list[Piece]:
    """Cut `body` into passages of at most `passage_tokens`, in reading order.

    Every visible character of the body, headings apart, is in a passage. Passages of one section share at most
    `overlap_tokens`. A body without text gives one passage with the title; without a title either, none.
    """
    splitter = _splitter(passage_tokens, overlap_tokens)
    pieces = [
        (PATH_SEPARATOR.join(path), text.strip("\n").rstrip())
        for path, section in _sections(title.strip(), _plain(body))
        for text in splitter.split_text(section)
        if text.strip()
    ]
    if not pieces and title.strip():
        pieces = [(title.strip(), title.strip())]
    return [Piece(ordinal, path, text) for ordinal, (path, text) in enumerate(pieces)]


def count_tokens(text: str) -> int:
    """About how many tokens a text has: four letters a token, one for a sign of a script without spaces, or an emoji."""
    narrow, wide = _WIDE.subn("", text)
    # The count of a message adds its role, which is one token long.
    return count_tokens_approximately([HumanMessage(narrow)], extra_tokens_per_message=-1.0) + wide


def clip(text: str, max_tokens: int) -> str:
    """The beginning of a text, at most `max_tokens` of it, cut between words where it can be and never inside a character."""
    if count_tokens(text) <= max_tokens:
        return text
    pieces = _splitter(max_tokens, 0).split_text(text[: max_tokens * 8])
    return pieces[0].rstrip() if pieces else ""


def embedding_text(piece: Piece) -> str:
    """What stands for a passage in the vector index: where it stands, then what it says."""
    return f"{piece.title_path}\n{piece.text}"


@lru_cache(maxsize=8)
def _splitter(passage_tokens: int, overlap_tokens: int) -> RecursiveCharacterTextSplitter:
    return RecursiveCharacterTextSplitter(
        separators=list(_SEPARATORS),
        is_separator_regex=True,
        keep_separator="end",
        chunk_size=passage_tokens,
        chunk_overlap=overlap_tokens,
        length_function=count_tokens,
        strip_whitespace=False,
    )


def _sections(title: str, body: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Text under each heading, with the headings above it. A `#` inside a code fence is no heading."""
    path: list[tuple[int, str]] = [(0, title)] if title else []
    lines: list[str] = []
    fence = ""
    for line in body.split("\n"):
        opened = _FENCE.match(line)
        if opened:
            fence = "" if opened[1] == fence else fence or opened[1]
        heading = None if fence else _HEADING.match(line)
        if heading is None:
            lines.append(line)
            continue
        yield tuple(name for _, name in path), "\n".join(lines)
        lines = []
        level = len(heading[1])
        path = [(above, name) for above, name in path if above < level]
        if not (level == 1 and heading[2] == title):
            path.append((level, heading[2]))
    yield tuple(name for _, name in path), "\n".join(lines)


def _plain(body: str) -> str:
    """One kind of line end; HTML as text with `#` headings."""
    body = body.replace("\r\n", "\n").replace("\r", "\n")
    if not _HTML.search(body):
        return body
    reader = _HtmlText()
    reader.feed(body)
    reader.close()
    return "".join(reader.parts)


class _HtmlText(HTMLParser):
    """Text of a page: headings become `#` lines, blocks become lines, scripts and styles are left out."""

    _BLOCKS: Final = frozenset({"p", "div", "ul", "ol", "table", "section", "article", "blockquote", "pre"})
    _LINES: Final = frozenset({"br", "li", "tr"})
    _HIDDEN: Final = frozenset({"script", "style", "template"})

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a heading, a block or a line."""
        del attrs
        self._hidden += tag in self._HIDDEN
        if len(tag) == 2 and tag[0] == "h" and tag[1] in "123456":
            self.parts.append("\n\n" + "#" * int(tag[1]) + " ")
        else:
            self._break(tag)

    def handle_endtag(self, tag: str) -> None:
        """End a heading, a block or a line."""
        if tag in self._HIDDEN and self._hidden:
            self._hidden -= 1
        if len(tag) == 2 and tag[0] == "h" and tag[1] in "123456":
            self.parts.append("\n\n")
        elif tag not in self._LINES:
            self._break(tag)

    def handle_data(self, data: str) -> None:
        """Keep visible text."""
        if not self._hidden:
            self.parts.append(data)

    def _break(self, tag: str) -> None:
        if tag in self._BLOCKS:
            self.parts.append("\n\n")
        elif tag in self._LINES:
            self.parts.append("\n")
