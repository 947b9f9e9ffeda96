"""Read a page of HTML as Markdown: headings, paragraphs, lists, tables and code stand as such; scripts and styles are left out.

A Markdown article may have tags in it. Its code is kept to the character, and a `<name>` that is none of the usual
tags is text. What begins and ends with a tag, and has neither a fence nor a tag in backticks, is a page.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import unescape
from typing import Final, Literal, NamedTuple

from flows.blocks import code_places

_HEADINGS: Final = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_PARAGRAPHS: Final = frozenset({"p", "div", "section", "article", "blockquote"})
_COMMENT: Final = "!--"
_HIDDEN: Final = frozenset({"script", "style", "template", _COMMENT})
_LISTS: Final = frozenset({"ul", "ol"})
_CELLS: Final = frozenset({"td", "th"})
_HOLDERS: Final = _LISTS | {"table", "tr"}
_FRAMES: Final = _HOLDERS | _CELLS | {"li", "pre"}
_BLOCKS: Final = _HEADINGS | _PARAGRAPHS | _FRAMES
# Without one of these, a text that has tags is read as it is.
_TELLING: Final = _HEADINGS | _PARAGRAPHS | _HOLDERS | {"li", "br", "body"}
# Beside them, what a Markdown article has as tags. Left out are names that people give to what is to be filled in: `<input>`.
_OTHERS: Final = (
    "a abbr aside b big caption center cite code col colgroup dd del details dfn dl dt em figcaption figure font footer head "
    "header hr html i iframe img ins kbd main mark nav picture q s samp small span strike strong sub summary sup svg tbody tfoot "
    "thead tt u video wbr"
)
_KNOWN: Final = _TELLING | _BLOCKS | _HIDDEN | frozenset(_OTHERS.split())
# What a new element of a kind ends, when its page forgot to, and what it must not end beyond.
_ENDS: Final = {"li": ({"li"}, _LISTS), "tr": ({"tr"}, {"table"}), "td": (_CELLS, {"tr"}), "th": (_CELLS, {"tr"})}
_DEEPEST: Final = 32  # each level writes its text once more
_SPACE: Final = re.compile(r"[ \t\r\n\f]+")
_INDENT: Final = re.compile(r"\n[ \t]+")
_TICKS: Final = re.compile(r"`{3,}")
_MARKDOWN: Final = re.compile(r"^ {0,3}(?:`{3}|~{3})|`[^`\n<]{0,200}<[^`\n]{1,200}`", re.MULTILINE)
# Decimal digits beyond what `int` reads.
_ENDLESS: Final = re.compile(r"&(?=#[0-9]{9})")
# No alternative looks beyond the next `<`, or beyond 500 characters of code: each is tried at every place of a text.
# A comment ends at its `-->`, whatever looks like a tag before it.
_TAG: Final = (
    r"<(?P<slash>/?)(?P<name>[a-z][a-z0-9]*(?:[:-][a-z0-9]+)*)(?=[\s/>])"
    r"(?>=\s*(?:\"(?:(?!-->)[^\"<])*\"|'(?:(?!-->)[^'<])*')|(?!-->)[^<>])*+>"
    r"|(?P<comment><!--(?!-?>)|-->)|(?P<aside><(?:!doctype|!\[|\?xml)(?:(?!-->)[^<>])*+>)"
)
_SPAN: Final = r"(?P<span>(?<![`\\])(?P<ticks>`++)(?:[^\n]|\n(?![ \t]*\n)){1,500}?(?<!`)(?P=ticks)(?!`))"
_PAGE: Final = re.compile(_TAG, re.IGNORECASE)
_ARTICLE: Final = re.compile(f"{_TAG}|{_SPAN}", re.IGNORECASE)


def plain(body: str) -> str:
    """A body with one kind of line end; a page of HTML as Markdown, and Markdown without the tags in it."""
    body = body.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    if "<" not in body:
        return body
    is_page = body.lstrip().startswith("<") and body.rstrip().endswith(">") and not _MARKDOWN.search(body)
    tokens = list(_page_tokens(body) if is_page else _article_tokens(body))
    if not any(token.name in _TELLING for token in tokens):
        return body
    reader = _Reader(is_page=is_page)
    reader.read(tokens)
    return reader.text()


class _Token(NamedTuple):
    """A part of a body: text, code in a line or in lines of its own, or what begins or ends an element of a name."""

    kind: Literal["text", "span", "block", "start", "end"]
    source: str
    name: str = ""


def _page_tokens(body: str) -> Iterator[_Token]:
    yield from _marked(_PAGE, body, 0, len(body))


def _article_tokens(body: str) -> Iterator[_Token]:
    at = 0
    for begin, end in code_places(body):
        yield from _marked(_ARTICLE, body, at, begin)
        yield _Token("block", body[begin:end])
        at = end
    yield from _marked(_ARTICLE, body, at, len(body))


def _marked(markup: re.Pattern[str], body: str, begin: int, end: int) -> Iterator[_Token]:
    at = begin
    for found in markup.finditer(body, begin, end):
        yield _Token("text", body[at : found.start()])
        yield _token(found, only_known=markup is _ARTICLE)
        at = found.end()
    yield _Token("text", body[at:end])


def _token(found: re.Match[str], *, only_known: bool) -> _Token:
    source, name = found.group(), (found["name"] or "").lower()
    if found["comment"]:
        return _Token("start" if source == "<!--" else "end", source, _COMMENT)
    if found["aside"]:
        return _Token("text", "")
    if not name:
        return _Token("span", source)
    if only_known and name not in _KNOWN:
        return _Token("text", source)
    return _Token("end" if found["slash"] else "start", source, name)


@dataclass
class _Frame:
    """An open element whose text is written when it ends. `rows` are a table's, `cells` a row's; `items` counts a list's.

    `line_begins`: the first visible sign of the line that is being written.
    """

    tag: str
    parts: list[str] = field(default_factory=list[str])
    rows: list[list[str]] = field(default_factory=list[list[str]])
    cells: list[str] = field(default_factory=list[str])
    items: int = 0
    line_begins: str = ""


class _Reader:
    def __init__(self, *, is_page: bool) -> None:
        self._is_page = is_page
        self._frames = [_Frame("")]
        self._in_heading = False

    def read(self, tokens: Sequence[_Token]) -> None:
        """Read all of a body."""
        last = {token.name: at for at, token in enumerate(tokens) if token.kind == "end"}
        hiding = ""
        for at, token in enumerate(tokens):
            if hiding:
                hiding = "" if (token.kind, token.name) == ("end", hiding) else hiding
            elif token.kind == "start" and token.name in _HIDDEN and last.get(token.name, 0) > at:
                hiding = token.name
            elif token.name in _HIDDEN:
                self._tell(token.source)  # it hides nothing: someone wrote of it
            else:
                self._take(token)

    def text(self) -> str:
        """What was read, with all that is still open."""
        while len(self._frames) > 1:
            self._end()
        return "".join(self._frames[0].parts)

    def _take(self, token: _Token) -> None:
        if token.kind == "block" or token.name in _BLOCKS:
            self._in_heading = token.kind == "start" and token.name in _HEADINGS
        match token.kind:
            case "text":
                self._tell(unescape(_ENDLESS.sub("&amp;", token.source)))
            case "span":
                self._write(token.source)
            case "block":
                self._write(token.source if self._frames[-1].tag in {"", "pre"} else f"\n\n{token.source}\n\n")
            case "start":
                self._open(token.name)
            case "end":
                self._close(token.name)

    def _open(self, tag: str) -> None:
        """Begin a heading, a paragraph, a line, or an element that is written when it ends."""
        if tag in _HEADINGS:
            self._write("\n\n" + "#" * int(tag[1]) + " ")
        elif tag in _PARAGRAPHS:
            self._write("\n\n")
        elif tag == "br":
            # Pages mix both: a line end would tear a row of a Markdown table, as it would a heading.
            self._write(" " if self._in_heading or self._frames[-1].line_begins == "|" else "\n")
        elif tag in _FRAMES:
            self._begin(tag)

    def _close(self, tag: str) -> None:
        """End what `_open` began."""
        if tag in _HEADINGS or tag in _PARAGRAPHS:
            self._write("\n\n")
        elif any(frame.tag == tag for frame in self._frames):
            while self._end() != tag:
                pass

    def _tell(self, data: str) -> None:
        """Keep visible text; within a heading, a list or a table, line ends are spaces."""
        around = self._frames[-1].tag
        if around in _HOLDERS and not data.strip():
            return
        if around not in {"", "pre"} or self._in_heading:
            data = _SPACE.sub(" ", data)
        elif not around:
            data = self._unindented(data)
        if data:
            self._write(data)

    def _unindented(self, data: str) -> str:
        """Text without the indent that means nothing in a page, and would make code of a paragraph in Markdown."""
        if self._is_page:
            data = _INDENT.sub("\n", data)
        return data.lstrip() if self._frames[0].parts[-1:] == ["\n\n"] else data

    def _begin(self, tag: str) -> None:
        ended, bound = _ENDS.get(tag, ((), ()))
        for frame in reversed(self._frames):
            if frame.tag in bound:
                break
            if frame.tag in ended:
                while self._end() not in ended:
                    pass
                break
        stray = tag in _ENDS and self._frames[-1].tag not in bound
        if stray or len(self._frames) > _DEEPEST:
            self._write("\n")
        else:
            self._frames.append(_Frame(tag))

    def _end(self) -> str:
        """Write the innermost open element into the one around it. Returns its tag."""
        frame, around = self._frames.pop(), self._frames[-1]
        text = "".join(frame.parts)
        if frame.tag == "pre":
            self._write(_code(text))
        elif frame.tag == "li":
            around.items += 1
            around.parts.append(_item("- " if around.tag == "ul" else f"{around.items}. ", text))
        elif frame.tag in _LISTS:
            self._write(f"\n{text}" if around.tag == "li" else f"\n\n{text}\n")
        elif frame.tag in _CELLS:
            around.cells.append(_SPACE.sub(" ", text).strip().replace("|", "\\|"))
        elif frame.tag == "tr":
            around.rows.append([*frame.cells, *([text.strip()] if text.strip() else [])])
        else:
            self._write(f"{text}\n\n{_table(frame.rows)}\n\n")
        return frame.tag

    def _write(self, text: str) -> None:
        frame = self._frames[-1]
        frame.parts.append(text)
        _, end, line = text.rpartition("\n")
        frame.line_begins = (("" if end else frame.line_begins) + line.lstrip())[:1]


def _code(text: str) -> str:
    fence = "`" * max([3, *(len(ticks) + 1 for ticks in _TICKS.findall(text))])
    code = text.strip("\n")
    return f"\n\n{fence}\n{code}\n{fence}\n\n" if code.strip() else ""


def _item(marker: str, text: str) -> str:
    """A list's item, what is below its first line indented so that it stays in it."""
    lines = re.sub(r"\n[ \n]*\n", "\n\n", text.strip()).split("\n")
    rest = "".join(f"\n{' ' * len(marker)}{line}" if line.strip() else "\n" for line in lines[1:])
    return f"{marker}{lines[0]}{rest}\n"


def _table(rows: list[list[str]]) -> str:
    """Rows under a head; as paragraphs when they are no table but a layout."""
    rows = [row for row in rows if any(row)]
    width = max(map(len, rows), default=0)
    if len(rows) < 2 or width < 2:
        return "\n\n".join(cell for row in rows for cell in row)
    # A reader fills up short rows by itself; written out, ten thousand of them under one of ten thousand cells fill the memory.
    rows[0] = [*rows[0], *[""] * (width - len(rows[0]))]
    head, *body = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([head, f"|{' --- |' * width}", *body])
