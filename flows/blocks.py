"""Read a Markdown text as blocks, and cut it between them: code, tables and list items stay whole where they fit.

The parser only tells the lines of a block. What is given is the source itself, line by line, never rendered anew.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from flows.tokens import count_tokens, split

# HTML blocks and link definitions would swallow lines in which a reader sees headings and lists.
_PARSER: Final = MarkdownIt("commonmark").enable("table").disable(["inline", "html_block", "reference"])
_LISTS: Final = frozenset({"bullet_list", "ordered_list"})
_HOLDERS: Final = _LISTS | {"list_item", "blockquote"}
_STRUCTURES: Final = _LISTS | {"fence", "table"}
_CODE: Final = frozenset({"fence", "code_block"})
_END: Final = "\n"
_SIGN: Final = re.compile(r"[^\s>]")


@dataclass(frozen=True, slots=True)
class Heading:
    """A `#` heading that stands in no other block. `line` counts from 0."""

    line: int
    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Block:
    """Lines that belong together, with their line ends. `parts` share them out: the items of a list, the blocks of an item.

    `kind` is the parser's name of it, or `gap` for lines of no block; `fence` is what opens and closes a code block.
    """

    kind: str
    lines: tuple[str, ...]
    parts: tuple["Block", ...] = ()
    fence: str = ""

    @property
    def text(self) -> str:
        """The source."""
        return "".join(self.lines)

    @property
    def structured(self) -> bool:
        """Whether it is or holds a code block, a table or a list."""
        return self.kind in _STRUCTURES or any(part.structured for part in self.parts)


def headings(text: str) -> list[Heading]:
    """The `#` headings of a text that have a name. A `#` in code, a list or a quotation makes none."""
    return [
        Heading(opening.map[0], len(opening.markup), inside.content)
        for opening, inside in pairwise(_PARSER.parse(text))
        if opening.type == "heading_open" and opening.level == 0 and opening.map and "#" in opening.markup and inside.content
    ]


def code_places(text: str) -> Iterator[tuple[int, int]]:
    """Where the code blocks of a text begin and end, fenced or indented, in whole lines, without the last line end."""
    starts = list(accumulate((len(line) + 1 for line in text.split("\n")), initial=0))
    for token in _PARSER.parse(text):
        if token.type in _CODE and token.map:
            first, last = token.map
            yield starts[first], starts[last] - 1


def blocks(text: str) -> list[Block]:
    """The blocks of a text, in order; each line is in one of them."""
    lines = [f"{line}\n" for line in text.split("\n")]
    return list(_shared_out(SyntaxTreeNode(_PARSER.parse(text)).children, lines, 0, len(lines)))


def cut(text: str, max_tokens: int, *, overlap_tokens: int) -> list[str]:
    """Cut a text into pieces of at most `max_tokens`, in order, between blocks where it can be.

    A list is cut between its items, an item that does not fit between its blocks. Code is cut between lines, and each piece is
    fenced as the whole was; a table between rows, and each piece begins with its head. Where even a line does not fit, in
    prose, and in a text without code, tables and lists, the cut is that of `tokens.split`; prose alone shares `overlap_tokens`.
    """
    found = blocks(text)
    if not any(block.structured for block in found):
        return split(text, max_tokens, overlap_tokens=overlap_tokens)
    leaves = (leaf for block in found for leaf in _leaves(block, max_tokens))
    return [piece for piece in _joined(leaves, max_tokens, overlap_tokens) if piece.strip()]


def _leaves(block: Block, most: int) -> Iterator[Block]:
    """What a block is cut between: a list's items, and the blocks of an item or a quotation that does not fit."""
    if block.parts and (block.kind in _LISTS or count_tokens(block.text) > most):
        for part in block.parts:
            yield from _leaves(part, most)
    else:
        yield block


def _joined(leaves: Iterable[Block], most: int, overlap: int) -> Iterator[str]:
    """Texts of blocks in a row while they fit. One that has to be cut begins in the piece of the few lines before it."""
    filling, tokens = "", 0
    for leaf in leaves:
        size = count_tokens(leaf.text)
        if tokens + size > most:
            first, *rest = [leaf.text] if size <= most else _cut(leaf, most, overlap, lead=tokens)
            if size > most and tokens + count_tokens(first) <= most:
                first = filling + first
            else:
                yield filling
            *before, filling = first, *rest
            yield from before
            tokens = count_tokens(filling)
        else:
            filling += leaf.text
            tokens += size
    yield filling


def _cut(block: Block, most: int, overlap: int, *, lead: int) -> list[str]:
    lead = lead if lead <= most // 4 else 0
    if block.kind == "fence":
        return _cut_code(block, most, lead)
    if block.kind == "table":
        return _cut_under("".join(block.lines[:2]), block.lines[2:], "", most, lead)
    return split(block.text, most, overlap_tokens=overlap)


def _cut_code(block: Block, most: int, lead: int) -> list[str]:
    opening, *body = block.lines
    before = opening[: opening.index(block.fence)]
    last = body[-1].strip(" \t\n>" if ">" in before else None) if body else ""
    # The text may end before the code does.
    closed = last.startswith(block.fence) and not last.strip(block.fence[0])
    closing = body.pop() if closed else f"{_SIGN.sub(' ', before)}{block.fence}\n"
    return _cut_under(opening, body, closing, most, lead)


def _cut_under(opening: str, lines: Sequence[str], closing: str, most: int, lead: int) -> list[str]:
    """Lines in pieces that each have the opening above and the closing below; as plain text when those take half the room.

    The first piece leaves room for `lead` tokens, where its first line does.
    """
    room = most - count_tokens(opening + closing)
    if room < most // 2:
        return split("".join((opening, *lines, closing)), most)
    parts = (part for line in lines for part in ([line] if count_tokens(line) <= room else split(line, room)))
    filled = (part for part in _filled(parts, room, lead) if part.strip())
    return [f"{opening}{part.removesuffix(_END)}{_END}{closing}" for part in filled]


def _filled(texts: Iterable[str], most: int, lead: int) -> Iterator[str]:
    """Texts in a row joined while they fit, the first ones beside `lead` tokens."""
    filling, tokens = "", lead
    for text in texts:
        size = count_tokens(text)
        if tokens + size > most:
            yield filling
            filling, tokens = "", 0
        filling += text
        tokens += size
    yield filling


def _shared_out(nodes: Sequence[SyntaxTreeNode], lines: Sequence[str], start: int, end: int) -> Iterator[Block]:
    """Blocks for the lines from `start` to `end`, with those that no node covers."""
    at = start
    for node in nodes:
        first, last = node.map or (at, at)
        if at < first:
            yield Block("gap", tuple(lines[at:first]))
        parts = tuple(_shared_out(node.children, lines, first, last)) if node.type in _HOLDERS else ()
        yield Block(node.type, tuple(lines[first:last]), parts, node.markup if node.type == "fence" else "")
        at = last
    if at < end:
        yield Block("gap", tuple(lines[at:end]))
