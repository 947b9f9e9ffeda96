"""Tell texts that say the same: nearly the same words, and no number, name or negation that differs.

Articles of one product repeat each other with another plan or amount in one place. Those are no duplicates, however alike.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

ROW_WORDS: Final = 2
SAME_AT: Final = 0.85

_WORD: Final = re.compile(r"\w+")
_NEGATIONS: Final = frozenset({"no", "not", "never", "none", "nor", "cannot", "without", "except", "only", "unless", "t"})
_Item = TypeVar("_Item")

Rows = frozenset[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Wording:
    """How a text is worded: its rows of words, and the words whose change is a change of fact."""

    rows: Rows
    telling: frozenset[str]


def wording(text: str) -> Wording:
    """Read a text once, to compare it with many."""
    words = _WORD.findall(text)
    folded = [word.casefold() for word in words]
    starts = range(max(1, len(words) - ROW_WORDS + 1))
    return Wording(
        rows=frozenset(tuple(folded[start : start + ROW_WORDS]) for start in starts),
        telling=frozenset(low for word, low in zip(words, folded, strict=True) if _tells(word, low)),
    )


def likeness(one: Wording, other: Wording) -> float:
    """From 0, nothing shared, to 1, the same rows of words (Jaccard)."""
    return len(one.rows & other.rows) / (len(one.rows | other.rows) or 1)


def same(one: Wording, other: Wording) -> bool:
    """Whether two texts say the same for a reader."""
    return one.telling == other.telling and likeness(one, other) >= SAME_AT


def distinct(items: Iterable[_Item], *, text: Callable[[_Item], str]) -> Iterator[_Item]:
    """The items in their order, without those that say the same as one before them."""
    kept: list[Wording] = []
    for item in items:
        words = wording(text(item))
        if not any(same(words, other) for other in kept):
            kept.append(words)
            yield item


def _tells(word: str, folded: str) -> bool:
    return word != folded or folded in _NEGATIONS or any(letter.isdigit() for letter in word)
