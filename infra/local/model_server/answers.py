"""Extractive answers: the sentences of numbered passages that fit a question best, each with its marker."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from infra.local.model_server import words

CANNOT_ANSWER: Final = "I cannot answer that from the articles I have."
MAX_SENTENCES: Final = 3
MIN_SENTENCE_CHARS: Final = 20
MAX_SENTENCE_CHARS: Final = 400
KEEP_FROM_BEST: Final = 0.6

_HEAD: Final = re.compile(r"^\[(\d+)\][ \t]*(.*)$", re.MULTILINE)
_MARKER: Final = re.compile(r"\s*\[\d+\]")


@dataclass(frozen=True, slots=True)
class Passage:
    """A numbered passage as it stands in a prompt or a tool's result."""

    number: int
    heading: str
    text: str


def read_passages(text: str) -> list[Passage]:
    """Find passages that begin with a line like `[1] Title > Path`."""
    heads = list(_HEAD.finditer(text))
    ends = [*(head.start() for head in heads[1:]), len(text)]
    return [Passage(int(head[1]), head[2].strip(), text[head.end() : end].strip()) for head, end in zip(heads, ends, strict=False)]


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence with what its score needs."""

    text: str
    words: frozenset[str]
    length: int


def answer(question: str, passages: Sequence[Passage]) -> str:
    """One to three sentences of the passages, each followed by its marker; or that it cannot be answered.

    A sentence scores by the rare words it shares with the question, its heading's words counting half. Words are compared,
    not vectors: encoding every sentence would cost a quarter of a second an answer.
    """
    asked = frozenset(words.content_words(question))
    candidates = [(passage, sentence) for passage in passages for sentence in _sentences(passage.text)]
    weights = _rarity([sentence for _, sentence in candidates], asked)
    scored = [(_score(asked, passage, sentence, weights), index) for index, (passage, sentence) in enumerate(candidates)]
    scored.sort(key=lambda pair: (-pair[0], pair[1]))
    if not scored or not _is_about(asked, *candidates[scored[0][1]]):
        return CANNOT_ANSWER
    best = [index for score, index in scored[:MAX_SENTENCES] if score >= KEEP_FROM_BEST * scored[0][0]]
    return " ".join(f"{candidates[index][1].text} [{candidates[index][0].number}]" for index in sorted(best))


@lru_cache(maxsize=4096)
def _sentences(text: str) -> tuple[_Sentence, ...]:
    found = [_MARKER.sub("", sentence) for sentence in words.sentences(text)]
    kept = list(dict.fromkeys(s for s in found if MIN_SENTENCE_CHARS <= len(s) <= MAX_SENTENCE_CHARS)) or found[:1]
    spoken = [words.content_words(sentence) for sentence in kept]
    return tuple(_Sentence(text, frozenset(own), len(own)) for text, own in zip(kept, spoken, strict=True))


@lru_cache(maxsize=4096)
def _heading_words(heading: str) -> frozenset[str]:
    return frozenset(words.content_words(heading))


def _rarity(sentences: Sequence[_Sentence], asked: frozenset[str]) -> dict[str, float]:
    seen = Counter(word for sentence in sentences for word in asked & sentence.words)
    return {word: math.log(1 + len(sentences) / count) for word, count in seen.items()}


def _score(asked: frozenset[str], passage: Passage, sentence: _Sentence, weights: dict[str, float]) -> float:
    own = sum(weights[word] for word in sorted(asked & sentence.words))
    lent = sum(weights.get(word, 1.0) for word in sorted(asked & _heading_words(passage.heading))) / 2
    return (own + lent) / (1 + math.log(1 + sentence.length / 20)) / (1 + 0.05 * (passage.number - 1))


def _is_about(asked: frozenset[str], passage: Passage, sentence: _Sentence) -> bool:
    """One shared word for a question of one or two, two up to ten, else three."""
    shared = asked & (sentence.words | _heading_words(passage.heading))
    return len(shared) >= (1 if len(asked) <= 2 else 2 if len(asked) <= 10 else 3)
