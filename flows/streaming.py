"""From a model's chunks to answer deltas that always add up to the final text."""

import re
from collections.abc import Iterator
from typing import Any, Final, Literal, cast

from langchain_core.messages import BaseMessage

from flows.ports import Clock
from topics import sizes
from topics.events import AnswerDelta, AnswerRestarted, Payload
from topics.text import clean_text, shorten

RestartReason = Literal["retry", "tool_call", "resumed"]

_SURROGATE_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def text_of(message: BaseMessage) -> str:
    """The text a person may read: blocks of type `text` only, never reasoning."""
    if isinstance(message.content, str):
        return message.content
    return "".join(_block_text(block) for block in message.content)


def _block_text(block: str | dict[Any, Any]) -> str:
    if isinstance(block, str):
        return block
    text = block.get("text")
    return text if block.get("type") == "text" and isinstance(text, str) else ""


def storable_text(text: str) -> str:
    """Join split surrogate pairs, then make the text storable everywhere."""
    return clean_text(_SURROGATE_PAIR.sub(_joined, text))


def _joined(pair: re.Match[str]) -> str:
    return pair.group().encode("utf-16", "surrogatepass").decode("utf-16")


class TextCleaner:
    """`storable_text` for text that comes in pieces: the joined results are the result of the joined pieces."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """Clean what is complete; half a surrogate pair at the end waits for the other half."""
        text = self._held + piece
        self._held = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return storable_text(text[: len(text) - len(self._held)])

    def flush(self) -> str:
        """Clean what is left, at the end of the text."""
        held, self._held = self._held, ""
        return storable_text(held)


class AnswerStream:
    """The deltas of one run. A pure core: it is fed chunks and gives payloads.

    An attempt is one try at the text; a restart voids it. Attempts of a later run are higher, because its fence is: attempt =
    fence * 1000 + restarts so far. `reopened` says why a run is not the first of its query; it is announced with the first text.
    """

    def __init__(
        self,
        *,
        thread_id: str,
        query_id: str,
        fence: int,
        clock: Clock,
        interval_s: float,
        reopened: Literal["retry", "resumed"] | None = None,
    ) -> None:
        self.attempt = fence * 1000
        self.thread_id = thread_id
        self.query_id = query_id
        self._clock = clock
        self._interval_s = interval_s
        self._announce: RestartReason | None = reopened
        self._turn: str | None = None
        self._turn_calls_tools = False
        self._cleaner = TextCleaner()
        self._sent = ""
        self._sequence = 0
        self._buffer = ""
        self._sent_at_s: float | None = None

    def chunk(self, *, turn: str, text: str, calls_tools: bool) -> Iterator[Payload]:
        """Take one chunk of a model turn. The first text goes at once, later text when the interval has passed."""
        if turn != self._turn:
            yield from self._begin_turn(turn)
        if calls_tools and not self._turn_calls_tools:
            self._turn_calls_tools = True
            yield from self._void("tool_call")
        if self._turn_calls_tools:
            return
        self._buffer += self._cleaner.feed(text)
        if self._buffer and self._is_due():
            yield from self._send()

    def finish(self, final: str) -> Iterator[Payload]:
        """Send what is missing, so that the current attempt is `final` to the byte."""
        self._buffer = ""
        if not final.startswith(self._sent):
            yield from self._void("retry")
        self._buffer = final[len(self._sent) :]
        if self._buffer:
            yield from self._send()

    def _begin_turn(self, turn: str) -> Iterator[Payload]:
        self._turn, self._turn_calls_tools = turn, False
        yield from self._void("retry")

    def _void(self, reason: RestartReason) -> Iterator[Payload]:
        self._cleaner, self._buffer = TextCleaner(), ""
        if not self._sent:
            return
        self.attempt += 1
        self._sent, self._sequence, self._sent_at_s = "", 0, None
        yield AnswerRestarted(thread_id=self.thread_id, query_id=self.query_id, attempt=self.attempt, reason=reason)

    def _is_due(self) -> bool:
        return self._sent_at_s is None or self._clock.monotonic_s() - self._sent_at_s >= self._interval_s

    def _send(self) -> Iterator[Payload]:
        ids = {"thread_id": self.thread_id, "query_id": self.query_id}
        if self._announce is not None:
            yield AnswerRestarted(**ids, attempt=self.attempt, reason=self._announce)
            self._announce = None
        while piece := shorten(self._buffer, sizes.MAX_DELTA_CHARS):
            yield AnswerDelta(**ids, attempt=self.attempt, sequence=self._sequence, text=piece)
            self._buffer = self._buffer[len(piece) :]
            self._sent += piece
            self._sequence += 1
        self._sent_at_s = self._clock.monotonic_s()


def calls_tools(message: BaseMessage) -> bool:
    """Whether a chunk carries a piece of a tool call."""
    return any(
        bool(cast("object", getattr(message, name, None))) for name in ("tool_call_chunks", "tool_calls", "invalid_tool_calls")
    )
