"""Which of many tools a turn is shown: each schema is paid for on every call, and a model that sees forty picks worse. Pure.

Tools are scored by the words they share with the newest exchange, rare words counting more; no client and no vectors, so a re-run
after a crash is shown the same tools. Three places are for tools that read and two for those that change something: an order's
words find its change, which needs something read first. A tool that reads goes first when what it must be given has turned up in
a result. What is not shown still exists: its name is told, a call of it is judged like any other, and then it is shown.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import Any, Final, NamedTuple, cast

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from flows import history
from flows.agent.tools import Tool

ALL_UP_TO: Final = 20  # above that, models are known to choose worse
MAX_SHOWN: Final = 6
MAX_READ_CHARS: Final = 4_000
CAN_BE_GIVEN: Final = 10.0  # above what words alone come to

_WORD: Final = re.compile(r"[a-z]+|[0-9]+")
_KEY: Final = re.compile(r'"([A-Za-z_]{1,40})"\s*:')
_ENDINGS: Final = ("ation", "ment", "ings", "ing", "ies", "ied", "ers", "er", "ed", "es", "s", "e", "y")
_STOPPED: Final = """
a about after all an and any are as at be before but by can do for from get give has have if in into is it its me my no not of on
one only or our out so than that the their them then there they this to up us use want was we what when where which who will with
would you your
"""
_STOP: Final = frozenset(_STOPPED.split())


class Weights(NamedTuple):
    """How much words count by where they stand, and how many places are for tools that read.

    `python -m bench.tool_router choose` tries 144 choices on one half of the retail tasks: the best is one turn of 295 above this
    one, and the other half, which `long_thread` reports, has the same hits with both.

    Args:
        name: Words of a tool's name; those of its description and arguments count 1.
        result: Words of the exchange that the customer did not write; the customer's count 1.
        asked: The whole exchange, for a tool that reads; its latest step counts 1.
        reads: Places, beside the search, of the six.
    """

    name: float = 2.0
    result: float = 0.3
    asked: float = 0.5
    reads: int = 3


WEIGHTS: Final = Weights()


class Spoken(NamedTuple):
    """What the newest exchange says: its words with how much they count, those of its latest step, and what results name."""

    words: Mapping[str, float]
    latest: Mapping[str, float]
    named: frozenset[str]
    called: frozenset[str]
    last_called: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Entry:
    """A tool's words, each weighted, the length that they are measured by, and what it must be given."""

    tool: Tool
    words: Mapping[str, float]
    length: float
    needs: tuple[frozenset[str], ...]


class _Index(NamedTuple):
    """A toolset's tools, and how much each word tells."""

    entries: tuple[_Entry, ...]
    telling: Mapping[str, float]


def shown_tools(
    tools: Sequence[Tool], messages: Sequence[AnyMessage], *, pinned: Sequence[str] = (), weights: Weights = WEIGHTS
) -> tuple[Tool, ...]:
    """The tools to bind for the next turn, in their own order; all of them when they are few.

    Args:
        tools: All that the tenant has, the search first. It is always shown, and so is what the last step called.
        messages: The conversation up to the turn.
        pinned: Names that are shown until one of them has been called in the newest exchange, whatever the words.
    """
    if len(tools) <= ALL_UP_TO:
        return tuple(tools)
    index, spoken = _index(tuple(tools), weights.name), _spoken(messages, weights.result)
    known = {tool.name for tool in tools}
    begun = not spoken.called.isdisjoint(pinned)
    always = [tools[0].name, *[name for name in spoken.last_called if name in known][: weights.reads], *(() if begun else pinned)]
    chosen = list(dict.fromkeys(always))[:MAX_SHOWN]
    past = frozenset(pinned) if begun else frozenset[str]()
    reads, changes = _ranked(index, spoken, past=past, asked_weight=weights.asked)
    kept = len(set(chosen) & set(reads)) - (tools[0].name in reads)
    chosen += [name for name in reads if name not in chosen][: max(0, weights.reads - kept)]
    chosen = [*chosen, *(name for name in [*changes, *reads] if name not in chosen)][:MAX_SHOWN]
    return tuple(tool for tool in tools if tool.name in chosen)


def _ranked(index: _Index, spoken: Spoken, *, past: frozenset[str], asked_weight: float) -> tuple[list[str], list[str]]:
    """The names of the tools that read and of those that change, the likeliest first."""
    reads = {
        entry.tool.name: _read_score(entry, index, spoken, asked_weight) for entry in index.entries if entry.tool.effect == "READ"
    }
    changes = {entry.tool.name: _score(entry, index, spoken.words) for entry in index.entries if entry.tool.effect != "READ"}
    # A conversation begins once: what it began with comes last.
    ordered = sorted(reads, key=lambda name: (name in past, -reads[name], name))
    return ordered, sorted(changes, key=lambda name: (-changes[name], name))


def _read_score(entry: _Entry, index: _Index, spoken: Spoken, asked_weight: float) -> float:
    latest = _score(entry, index, spoken.latest or spoken.words) + asked_weight * _score(entry, index, spoken.words)
    can_be_given = bool(entry.needs) and all(need <= spoken.named for need in entry.needs)
    return latest + CAN_BE_GIVEN * can_be_given


def _score(entry: _Entry, index: _Index, said: Mapping[str, float]) -> float:
    shared = (weight * said[word] * index.telling[word] for word, weight in entry.words.items() if word in said)
    return sum(shared) / entry.length


def _spoken(messages: Sequence[AnyMessage], result_weight: float) -> Spoken:
    newest = (history.exchanges(messages) or [[]])[-1]
    words: dict[str, float] = {}
    for message in newest:
        weight = 1.0 if isinstance(message, HumanMessage) else result_weight
        for word in _words(_text(message)):
            words[word] = max(words.get(word, 0.0), weight)
    latest = [word for message in newest[-2:] if not isinstance(message, HumanMessage) for word in _words(_text(message))]
    results = [message for message in newest if isinstance(message, ToolMessage)]
    named = {word for result in results for word in (*_words(" ".join(_KEY.findall(result.text))), *_words(result.name or ""))}
    last = [message.name or "" for message in takewhile(lambda one: isinstance(one, ToolMessage), reversed(newest))]
    return Spoken(
        words,
        dict.fromkeys(latest, 1.0),
        frozenset(named),
        frozenset(one.name or "" for one in results),
        tuple(dict.fromkeys(last)),
    )


def _text(message: AnyMessage) -> str:
    calls = " ".join(call["name"] for call in message.tool_calls) if isinstance(message, AIMessage) else message.name or ""
    return f"{message.text[:MAX_READ_CHARS]} {calls}"


@lru_cache(maxsize=64)
def _index(tools: tuple[Tool, ...], name_weight: float) -> _Index:
    """Built once for a toolset."""
    entries = tuple(_entry(tool, name_weight) for tool in tools)
    seen = Counter(word for entry in entries for word in entry.words)
    return _Index(entries, {word: math.log(1 + len(tools) / count) for word, count in seen.items()})


def _entry(tool: Tool, name_weight: float) -> _Entry:
    parameters = cast("dict[str, Any]", tool.schema()["function"]["parameters"])
    told = f"{tool.description} {json.dumps(parameters.get('properties', {}))}"
    words = {**dict.fromkeys(_words(told), 1.0), **dict.fromkeys(_words(tool.name), name_weight)}
    needs = tuple(frozenset(_words(name.replace("_id", ""))) for name in cast("Iterable[str]", parameters.get("required", [])))
    return _Entry(tool, words, math.sqrt(max(1.0, sum(words.values()))), needs)


def _words(text: str) -> Iterator[str]:
    return (_stem(word) for word in _WORD.findall(text.lower().replace("_", " ")) if word not in _STOP and len(word) > 1)


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word
