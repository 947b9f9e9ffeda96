"""Read a page of HTML as Markdown: headings, paragraphs, lists, tables and code stand as such; scripts and styles are left out."""

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Final

_HTML: Final = re.compile(r"<(?:p|br|h[1-6]|div|li|ul|ol|table|tr|section|article|body)\b[^<>]*>", re.IGNORECASE)
_HEADINGS: Final = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_PARAGRAPHS: Final = frozenset({"p", "div", "section", "article", "blockquote"})
_HIDDEN: Final = frozenset({"script", "style", "template"})
_LISTS: Final = frozenset({"ul", "ol"})
_CELLS: Final = frozenset({"td", "th"})
_HOLDERS: Final = _LISTS | {"table", "tr"}
_FRAMES: Final = _HOLDERS | _CELLS | {"li", "pre"}
# What a new element of a kind ends, when its page forgot to, and what it must not end beyond.
_ENDS: Final = {"li": ({"li"}, _LISTS), "tr": ({"tr"}, {"table"}), "td": (_CELLS, {"tr"}), "th": (_CELLS, {"tr"})}
_DEEPEST: Final = 32  # each level writes its text once more
_SPACE: Final = re.compile(r"[ \t\r\n\f]+")
_TICKS: Final = re.compile(r"`{3,}")


def plain(body: str) -> str:
    """A body with one kind of line end; a page of HTML as Markdown, anything else as it is."""
    body = body.replace("\r\n", "\n").replace("\r", "\n")
    if not _HTML.search(body):
        return body
    reader = _Reader()
    reader.feed(body)
    reader.close()
    return reader.text()


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


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._frames = [_Frame("")]
        self._hidden = 0

    def text(self) -> str:
        """What was read, with all that is still open."""
        while len(self._frames) > 1:
            self._end()
        return "".join(self._frames[0].parts)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a heading, a paragraph, a line, or an element that is written when it ends."""
        del attrs
        self._hidden += tag in _HIDDEN
        if tag in _HEADINGS:
            self._write("\n\n" + "#" * int(tag[1]) + " ")
        elif tag in _PARAGRAPHS:
            self._write("\n\n")
        elif tag == "br":
            # Pages mix both: a line end would tear a row of a Markdown table.
            self._write(" " if self._frames[-1].line_begins == "|" else "\n")
        elif tag in _FRAMES:
            self._begin(tag)

    def handle_endtag(self, tag: str) -> None:
        """End what `handle_starttag` began."""
        if tag in _HIDDEN and self._hidden:
            self._hidden -= 1
        if tag in _HEADINGS or tag in _PARAGRAPHS:
            self._write("\n\n")
        elif any(frame.tag == tag for frame in self._frames):
            while self._end() != tag:
                pass

    def handle_data(self, data: str) -> None:
        """Keep visible text; within a list or a table, line ends are spaces."""
        around = self._frames[-1].tag
        if self._hidden or (around in _HOLDERS and not data.strip()):
            return
        self._write(data if around in {"", "pre"} else _SPACE.sub(" ", data))

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
    head, *body = [f"| {' | '.join([*row, *[''] * (width - len(row))])} |" for row in rows]
    return "\n".join([head, f"|{' --- |' * width}", *body])
