"""What a test scripts: failures, replies and pace, each used up by the requests it matches."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from infra.local.model_server.completions import Reply, ToolCall, pieces

Kind = Literal[
    "status",  # answer `status`, with Retry-After when `retry_after_s` is given
    "delay",  # wait `delay_s` before anything else
    "hang",  # never answer
    "stall",  # in a stream, wait `delay_s` after `after_chunks` pieces
    "cut",  # end the stream properly after `after_chunks` pieces, without a finish reason
    "drop",  # drop the connection after `after_chunks` pieces
    "malformed",  # send an event that is not JSON after `after_chunks` pieces
    "error_event",  # send an error event after `after_chunks` pieces, and end
    "refusal",  # refuse, with `text`
    "finish",  # end with `finish_reason`, after `after_chunks` pieces of the text if given
    "empty_choices",  # choices: []
    "null_choices",  # choices: null
    "no_usage",  # leave the usage out
]
ON_STREAMS: Final[tuple[Kind, ...]] = ("stall", "cut", "drop", "malformed", "error_event")


class Scripted(BaseModel):
    """`match` is text anywhere in the request body, as sent or as a message says it; `times` None means for ever."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    match: str = ""
    skip: int = Field(default=0, ge=0, description="leave this many matching requests alone first")
    times: int | None = Field(default=1, ge=1)


class Fault(Scripted):
    """One way to fail, on `chat` or `embeddings` requests."""

    kind: Kind
    path: Literal["chat", "embeddings"] = "chat"
    status: int = Field(default=500, ge=400, le=599)
    code: str | None = None
    retry_after_s: float | None = Field(default=None, ge=0)
    delay_s: float = Field(default=0.0, ge=0)
    after_chunks: int | None = Field(default=None, ge=0)
    text: str = "I cannot help with that."
    finish_reason: str = "length"
    echo: bool = Field(default=False, description="the error quotes the request")


class ScriptedCall(BaseModel):
    """A tool call to be made. Text as arguments goes out as it is."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    arguments: dict[str, Any] | str = Field(default_factory=dict[str, Any])
    id: str | None = None


class ScriptedReply(Scripted):
    """What to say instead of what the brain would; `cut` is the text, cut as a stream is to be."""

    text: str | None = None
    tool_calls: tuple[ScriptedCall, ...] = ()
    refusal: str | None = None
    finish_reason: str | None = None
    cut: tuple[str, ...] = ()

    def reply(self) -> Reply:
        """The reply it stands for."""
        calls = tuple(ToolCall(call.name, call.arguments, call.id) for call in self.tool_calls)
        return Reply("".join(self.cut) or self.text, calls, self.refusal, self.finish_reason, self.cut)


class Pace(BaseModel):
    """How slow the model is; 0 tokens a second means all at once. A token is a word, or a piece of arguments."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    first_token_ms: float = Field(default=0.0, ge=0)
    tokens_per_s: float = Field(default=0.0, ge=0)

    def due_s(self, token: int) -> float:
        """When a token is due, counted from the request; the first is number 0."""
        return self.first_token_ms / 1000 + (token / self.tokens_per_s if self.tokens_per_s else 0.0)


ScriptedT = TypeVar("ScriptedT", bound=Scripted)


@dataclass(slots=True)
class _Entry(Generic[ScriptedT]):
    item: ScriptedT
    to_skip: int
    left: int | None


class Script(Generic[ScriptedT]):
    """Scripted items in order; each is taken as often as its `times` says."""

    def __init__(self) -> None:
        self._entries: list[_Entry[ScriptedT]] = []

    def add(self, items: Sequence[ScriptedT]) -> None:
        """Put items at the end."""
        self._entries += [_Entry(item, item.skip, item.times) for item in items]

    def clear(self) -> None:
        """Forget all."""
        self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)

    def take(self, texts: Sequence[str], accept: Callable[[ScriptedT], bool]) -> ScriptedT | None:
        """Use up one turn of the first item that is accepted, matches one of the texts, and is not to be skipped."""
        for entry in self._matching(texts, accept):
            if entry.to_skip:
                entry.to_skip -= 1
                continue
            if entry.left is not None:
                entry.left -= 1
            self._entries = [kept for kept in self._entries if kept.left != 0]
            return entry.item
        return None

    def _matching(self, texts: Sequence[str], accept: Callable[[ScriptedT], bool]) -> Iterator[_Entry[ScriptedT]]:
        for entry in self._entries:
            if accept(entry.item) and any(entry.item.match in text for text in texts):
                yield entry


def bend(reply: Reply, faults: Sequence[Fault]) -> Reply:
    """The reply as refusals and odd finish reasons leave it."""
    for fault in faults:
        if fault.kind == "refusal":
            reply = Reply(refusal=fault.text, finish_reason="stop")
        if fault.kind == "finish":
            kept = reply.text if fault.after_chunks is None else "".join(pieces(reply.text or "")[: fault.after_chunks])
            reply = Reply(kept, reply.tool_calls, reply.refusal, fault.finish_reason)
    return reply
