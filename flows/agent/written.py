"""What a model wrote, made fit to be stored: text only, every call once, each under an id that nobody else has. Pure.

Arguments are parsed here, from the text that was streamed. LangChain's own parse completes JSON that was cut off, so that
`{"cents": 49` would become an order about 49 cents.
"""

import json
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final, NoReturn, cast

from langchain_core.messages import AIMessage, AIMessageChunk, InvalidToolCall, ToolCall

from flows import streaming
from flows.agent import digests
from topics.text import clean_json, clean_text

MAX_DEPTH: Final = 32
MAX_BROKEN_CHARS: Final = 2_000
_KEPT_METADATA: Final = ("finish_reason", "model_name")


@dataclass(frozen=True, slots=True)
class _Written:
    """A call as written; no arguments when they cannot be read."""

    id: str
    name: str
    text: str
    arguments: dict[str, Any] | None


def storable_message(raw: AIMessage, *, message_id: str, taken_ids: AbstractSet[str]) -> AIMessage:
    """Turn a model's merged turn into the message that is stored.

    Calls that cannot be read become `invalid_tool_calls`, behind the others.

    Args:
        raw: The merged message of one model turn.
        message_id: The id to store it under.
        taken_ids: Call ids that already stand in the thread.
    """
    written = list(_without_repeats(_calls_in(raw)))
    taken = set(taken_ids)
    tool_calls, broken = list[ToolCall](), list[InvalidToolCall]()
    for index, call in enumerate(written):
        call_id = _free_id(call.id, taken=taken, fallback=f"{message_id}:{index}")
        if call.arguments is not None:
            tool_calls.append(ToolCall(type="tool_call", id=call_id, name=call.name, args=call.arguments))
        else:
            text = call.text[:MAX_BROKEN_CHARS]
            broken.append(InvalidToolCall(type="invalid_tool_call", id=call_id, name=call.name, args=text, error=None))
    return AIMessage(
        content=streaming.storable_text(streaming.text_of(raw)),
        id=message_id,
        tool_calls=tool_calls,
        invalid_tool_calls=broken,
        usage_metadata=raw.usage_metadata,
        response_metadata={name: raw.response_metadata[name] for name in _KEPT_METADATA if name in raw.response_metadata},
    )


def sendable_message(message: AIMessage) -> AIMessage:
    """The message as providers take it: a call whose arguments cannot be read goes without any, since some refuse bad JSON."""
    if not message.invalid_tool_calls:
        return message
    emptied = [
        ToolCall(type="tool_call", id=call["id"], name=call["name"] or "unknown", args={}) for call in message.invalid_tool_calls
    ]
    return message.model_copy(update={"tool_calls": [*message.tool_calls, *emptied], "invalid_tool_calls": []})


def _calls_in(raw: AIMessage) -> Iterator[_Written]:
    if isinstance(raw, AIMessageChunk) and raw.tool_call_chunks:
        for chunk in raw.tool_call_chunks:
            yield from _split(chunk["id"] or "", chunk["name"] or "", chunk["args"] or "")
        return
    for call in raw.tool_calls:
        yield from _split(call["id"] or "", call["name"], json.dumps(call["args"]))
    for call in raw.invalid_tool_calls:
        yield _Written(clean_text(call["id"] or ""), clean_text(call["name"] or "unknown"), clean_text(call["args"] or ""), None)


def _split(call_id: str, name: str, text: str) -> Iterator[_Written]:
    """Take apart what merging put together: a provider that sends a call twice under one index doubles name and arguments."""
    call_id, name, text = clean_text(call_id), clean_text(name) or "unknown", clean_text(text)
    documents = _documents(text)
    part = len(name) // len(documents) if documents else 0
    if documents and name == name[:part] * len(documents):
        name = name[:part]
    for arguments in documents or [None]:
        yield _Written(call_id, name, text, arguments)


def _documents(text: str) -> list[dict[str, Any]] | None:
    """The JSON objects that a text is made of, or None when it is anything else. No text at all is a call without arguments."""
    if not text.strip():
        return [{}]
    decoder, rest = json.JSONDecoder(parse_constant=_refuse), text.strip()
    documents: list[dict[str, Any]] = []
    try:
        while rest:
            value, end = decoder.raw_decode(rest)
            if not isinstance(value, dict) or _depth(value) > MAX_DEPTH:
                return None
            # What has no canonical form could be neither digested nor stored.
            digests.canonical(clean_json(value))
            documents.append(cast("dict[str, Any]", clean_json(value)))
            rest = rest[end:].lstrip()
    except (ValueError, RecursionError):
        return None
    return documents


def _refuse(_constant: str) -> NoReturn:
    raise ValueError("not JSON")


def _depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, cast("dict[str, Any]", value).values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_depth, cast("list[Any]", value)), default=0)
    return 0


def _without_repeats(written: Iterator[_Written]) -> Iterator[_Written]:
    kept: list[_Written] = []
    for call in written:
        # Only id, name and arguments together tell a call sent twice from two equal orders.
        if call.id and any((call.id, call.name, call.arguments) == (other.id, other.name, other.arguments) for other in kept):
            continue
        kept.append(call)
        yield call


def _free_id(wanted: str, *, taken: set[str], fallback: str) -> str:
    number, call_id = 1, wanted or digests.short_id(fallback)
    while call_id in taken:
        number += 1
        call_id = digests.short_id(f"{fallback}:{wanted}:{number}")
    taken.add(call_id)
    return call_id
