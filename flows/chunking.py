"""Cut an article into passages: by headings first, then between blocks, paragraphs, lines, sentences, words.

Short sections that follow each other share a passage: a heading with one line below it says too little to be found by.
A pure function: the same article gives the same passages, so a re-run writes the same index.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Final

from flows.blocks import cut, headings
from flows.html_text import plain
from flows.tokens import count_tokens, split

# With its title path and what counting by letters misses, a passage stays within the 256 tokens that the encoder reads.
PASSAGE_TOKENS: Final = 192
OVERLAP_TOKENS: Final = 20
PATH_SEPARATOR: Final = " > "

_Section = tuple[tuple[str, ...], str]


@dataclass(frozen=True, slots=True)
class Piece:
    """A passage before it has an article. `title_path` leads from the article's title to the heading above the text."""

    ordinal: int
    title_path: str
    text: str


def chunk(title: str, body: str, *, passage_tokens: int = PASSAGE_TOKENS, overlap_tokens: int = OVERLAP_TOKENS) -> list[Piece]:
    """Cut `body` into passages of at most `passage_tokens`, in reading order.

    Every visible character of the body, headings apart, is in a passage. Passages of one section share at most
    `overlap_tokens`, beside the head of a table and the fence of code that had to be cut (`blocks.cut`). A body without text
    gives one passage with the title; without a title either, none.
    """
    pieces = [
        (PATH_SEPARATOR.join(path), text.strip("\n").rstrip())
        for path, section in _packed(_sections(title.strip(), plain(body)), passage_tokens)
        for text in cut(section, passage_tokens, overlap_tokens=overlap_tokens)
        if text.strip()
    ]
    if not pieces and title.strip():
        pieces = [(title.strip(), title.strip())]
    return [Piece(ordinal, path, text) for ordinal, (path, text) in enumerate(pieces)]


def windows(text: str, *, most: int) -> list[str]:
    """Cut a text into parts that an encoder reads whole, without overlap; at most so many, from its beginning."""
    parts = (part for part in split(text, PASSAGE_TOKENS) if part.strip())
    return list(islice(parts, most))


def embedding_text(piece: Piece) -> str:
    """What stands for a passage in the vector index: where it stands, then what it says."""
    return f"{piece.title_path}\n{piece.text}"


def _packed(sections: Iterable[_Section], passage_tokens: int) -> Iterator[_Section]:
    """Join sections in a row while they fit into a passage. The joined text keeps the headings that its path lacks."""
    group: list[_Section] = []
    for section in sections:
        if not section[1].strip():
            continue
        if group and count_tokens(_joined([*group, section])[1]) > passage_tokens:
            yield _joined(group)
            group = []
        group.append(section)
    if group:
        yield _joined(group)


def _joined(group: Sequence[_Section]) -> _Section:
    if len(group) == 1:
        return group[0]
    shared = _shared([path for path, _ in group])
    texts: list[str] = []
    above = shared
    for path, text in group:
        known = len(_shared([above, path]))
        headings = [f"{'#' * (depth - len(shared) + 1)} {path[depth]}" for depth in range(known, len(path))]
        texts.append("\n".join([*headings, text.strip("\n")]))
        above = path
    return shared, "\n\n".join(texts)


def _shared(paths: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """What all paths begin with."""
    same = takewhile(lambda names: len(set(names)) == 1, zip(*paths, strict=False))
    return tuple(names[0] for names in same)


def _sections(title: str, body: str) -> Iterator[_Section]:
    """Text under each heading, with the headings above it."""
    path: list[tuple[int, str]] = [(0, title)] if title else []
    lines = body.split("\n")
    start = 0
    for heading in headings(body):
        yield tuple(name for _, name in path), "\n".join(lines[start : heading.line])
        start = heading.line + 1
        path = [(above, name) for above, name in path if above < heading.level]
        if not (heading.level == 1 and heading.text == title):
            path.append((heading.level, heading.text))
    yield tuple(name for _, name in path), "\n".join(lines[start:])
