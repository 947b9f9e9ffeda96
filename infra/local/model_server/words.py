"""Words and sentences of plain English text."""

import re
from typing import Final

_WORD: Final = re.compile(r"[a-z0-9]+")
_SENTENCE_END: Final = re.compile(
    r"""(?<=[.!?])\s+(?=["'(\[A-Z0-9])"""
    r"|(?<=[a-z)][.!?])(?=[A-Z][a-z])"  # articles whose markup was stripped have no blank there
    r"|\n\s*\n|\n(?=\s*[^\sa-z])"  # a line that begins in lower case goes on with the one before
)
_STOP: Final = frozenset(
    """
    a about after all also am an and any are as at be been but by can cannot could did do does doing for from get had has
    have he help her hi hello him his how i if in into is it its just like me my need no not of on or our out please she
    should so some than that the their them then there these they this to up us use want was we were what when where which
    who why will with would you your yours
    """.split()  # noqa: SIM905  a list of 130 quoted words would be unreadable
)
_ENDINGS: Final = ("ations", "ation", "ings", "ing", "ies", "ied", "ers", "er", "ed", "es", "s", "ly")


def content_words(text: str) -> list[str]:
    """Lower-case words that carry meaning, cut to their stems."""
    return [stem(word) for word in _WORD.findall(text.lower()) if word not in _STOP]


def stem(word: str) -> str:
    """Cut one common ending, so that `verifying` meets `verification` half-way; short words stay."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word[: -len(ending)]
    return word


def sentences(text: str) -> list[str]:
    """The sentences and lines of a text, blanks made single, none empty."""
    parts = (" ".join(part.split()) for part in _SENTENCE_END.split(text))
    return [part for part in parts if part]


def first_sentence(text: str, *, max_chars: int) -> str:
    """The first sentence, cut at a word when it is too long."""
    whole = (sentences(text) or [""])[0]
    if len(whole) <= max_chars:
        return whole
    return whole[: max_chars - 1].rsplit(" ", 1)[0].rstrip() + "\N{HORIZONTAL ELLIPSIS}"
