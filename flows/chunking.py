"""Cut an article into passages: by headings first, then between blocks, paragraphs, lines, sentences, words.

Short sections that follow each other share a passage: a heading with one line below it says too little to be found by.
A pure function: the same article gives the same passages, so a re-run writes the same index.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Final

from flows.answer_filter import SECRET, without_secrets
from flows.blocks import cut, headings
from flows.html_text import plain
from flows.secret_forms import PEM_LINES, PEM_WHOLE
from flows.tokens import clip, count_tokens, split

# With its title path and what counting by letters misses, a passage stays within the 256 tokens that the encoder reads.
PASSAGE_TOKENS: Final = 192
OVERLAP_TOKENS: Final = 20
NAME_TOKENS: Final = 64  # of a title or a heading: each passage below repeats it
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

    Every visible character of the body, secrets apart, is in a passage, or in the path of one where it is a heading. Passages of
    one section share at most `overlap_tokens`, beside the head of a table and the fence of code that had to be cut
    (`blocks.cut`). A body without text gives one passage with the title; without a title either, none.
    """
    title = named(title)
    # Cut first, a key of many lines would be known by its first passage alone.
    body = _without_keys(plain(body))
    pieces = [
        (PATH_SEPARATOR.join(path), text.strip("\n").rstrip())
        for path, section in _packed(_sections(title, body), passage_tokens)
        for text in cut(section, passage_tokens, overlap_tokens=overlap_tokens)
        if text.strip()
    ]
    if not pieces and title:
        pieces = [(title, title)]
    return [Piece(ordinal, path, text) for ordinal, (path, text) in enumerate(pieces)]


def _without_keys(body: str) -> str:
    """An article without secrets. A key without its own end has its lines alone: an article may only say how one begins."""
    return without_secrets(PEM_LINES.sub(SECRET, PEM_WHOLE.sub(SECRET, body)))


def named(title: str) -> str:
    """A title as each passage carries it: on one line, without secrets, and no longer than `NAME_TOKENS`."""
    return clip(without_secrets(" ".join(title.split())), NAME_TOKENS)


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
    """Text under each heading, with the headings above it. A heading is text itself where it is too long or has nothing below."""
    path: list[tuple[int, str]] = [(0, title)] if title else []
    lines = body.split("\n")
    start = 0
    found = [heading for heading in headings(body) if count_tokens(heading.text) <= NAME_TOKENS]
    for heading, following in zip(found, [*found[1:], None], strict=False):
        yield tuple(name for _, name in path), "\n".join(lines[start : heading.line])
        start, name = heading.line + 1, " ".join(heading.text.split())
        path = [(above, name) for above, name in path if above < heading.level]
        if heading.level == 1 and name == title:
            continue
        below = lines[start : following.line if following else None]
        if any(map(str.strip, below)) or (following and following.level > heading.level):
            path.append((heading.level, name))
        else:
            start = heading.line
    yield tuple(name for _, name in path), "\n".join(lines[start:])
