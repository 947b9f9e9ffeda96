"""Summaries of a conversation, and what they are good for: extractive, so that nothing is in them that nobody said."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, cast

import orjson

from infra.local.model_server import words
from infra.local.model_server.completions import ChatRequest

MAX_LINE_CHARS: Final = 240
CHARS_PER_WORD: Final = 6
DEFAULT_WORDS: Final = 300
NOTHING: Final = "Nothing to keep."

_TASK: Final = re.compile(r"\s*summari[sz]e a conversation\b", re.IGNORECASE)
_WORDS: Final = re.compile(r"\bat most (\d{1,5}) words\b")
_BLOCK: Final = "<{0}>\n(.*?)\n</{0}>"
_SUMMARY: Final = re.compile(_BLOCK.format("summary"), re.DOTALL)
_EXCHANGES: Final = re.compile(_BLOCK.format("exchanges"), re.DOTALL)
# An id, a number, an amount, an address of mail.
_FACT: Final = re.compile(r"[\w.+-]+@[\w-]+\.\w+|#?[A-Za-z_]*\d[\w.,-]*")
_OWN: Final = re.compile(r"\b(my|our|i am|i'm|i have|i live|we are|call me)\b", re.IGNORECASE)
_OWN_LEAST: Final = 2


def asked_for(request: ChatRequest) -> str | None:
    """The summary that a request orders, or None when it orders something else.

    Lines of the summary so far stay, and what a customer stated and what was done is added. Where that is too long, lines go
    that hold the fewest facts, oldest first.
    """
    rules = next((message.text for message in request.messages if message.role == "system" and _TASK.match(message.text)), None)
    exchanges = _EXCHANGES.search(request.asked)
    if rules is None or exchanges is None:
        return None
    before = [line for line in summary_in(request.asked).splitlines() if line != NOTHING]
    lines = list(dict.fromkeys([*before, *_lines(exchanges[1])]))
    most = _WORDS.search(rules)
    return "\n".join(_fitting(lines, (int(most[1]) if most else DEFAULT_WORDS) * CHARS_PER_WORD)) or NOTHING


def summary_in(text: str) -> str:
    """The text of a `summary` block; empty when there is none."""
    found = _SUMMARY.search(text)
    return found[1].strip() if found else ""


def recall(request: ChatRequest) -> str | None:
    """The line of the conversation's summary that is about what is asked, without who said it; None when there is none."""
    lines = [line for message in request.messages if message.role == "system" for line in summary_in(message.text).splitlines()]
    asked = set(words.content_words(request.asked))
    best = max(lines, key=lambda line: len(asked & set(words.content_words(line))), default="")
    shared = len(asked & set(words.content_words(best)))
    return best.partition(": ")[2] if shared >= min(_OWN_LEAST, len(asked)) and shared else None


def _lines(exchanges: str) -> Iterator[str]:
    for raw in exchanges.splitlines():
        try:
            said = cast("dict[str, Any]", orjson.loads(raw))
        except ValueError:
            continue
        if isinstance(text := said.get("customer"), str):
            yield from (f"Customer: {line}" for line in words.sentences(text) if _score(line) and not line.endswith("?"))
        for call in cast("list[dict[str, Any]]", said.get("calls") or []):
            if call.get("tool") != "search_articles":
                yield f"Called: {call.get('tool')} {call.get('arguments')}"[:MAX_LINE_CHARS]


def _score(line: str) -> int:
    return len(_FACT.findall(line)) + _OWN_LEAST * bool(_OWN.search(line))


def _fitting(lines: Iterable[str], limit: int) -> list[str]:
    kept = [line[:MAX_LINE_CHARS] for line in lines if line.strip()]
    while len("\n".join(kept)) > limit:
        kept.remove(min(kept, key=_score))
    return kept
