"""The words of a text as full text search knows them: the same in passages and in queries, whatever the server's language rules."""

import re
from collections.abc import Iterator
from typing import Final

MAX_QUERY_WORDS: Final = 128
_WORD: Final = re.compile(r"[a-z0-9]+")
# In this order: files -> file -> fil, shipping -> shipp -> ship, policies -> policie -> polici, as policy.
_ENDINGS: Final = (
    (re.compile(r"(?<=[a-z]{3})(?<!s)s$"), ""),
    (re.compile(r"(?<=[a-z]{3})(?:ing|ed)$"), ""),
    (re.compile(r"(?<=[a-z]{3})e$"), ""),
    (re.compile(r"(?<=[a-z]{2})y$"), "i"),
    (re.compile(r"([bdgmnprt])\1$"), r"\1"),
)
_STOP_TEXT: Final = """
a about after all also am an and any are as at be because been before being but by can could did do does doing down for
from had has have having he her here him his how i if in into is it its just like may me might more most must my no nor
not of on once only or our out over own please s same shall she should so some such t than that the their them then
there these they this those through to too under until up us very was we were what when where which while who whom why
will with would you your
"""
STOP_WORDS: Final = frozenset(_STOP_TEXT.split())


def query_terms(words: str) -> list[str]:
    """The words of a text that say something, each once, in their order; nothing in them means anything to the query language."""
    return list(dict.fromkeys(significant(words)))[:MAX_QUERY_WORDS]


def significant(text: str) -> Iterator[str]:
    """Words that say something, by their roots, in their order."""
    return (_root(word) for word in _WORD.findall(text.lower()) if word not in STOP_WORDS)


def _root(word: str) -> str:
    """A word without common English endings, the same in passages and queries; it need not be a word.

    The server's own stemming scores a word and its stem as two words, and a rare ending above the word itself.
    """
    for ending, instead in _ENDINGS:
        word = ending.sub(instead, word)
    return word
