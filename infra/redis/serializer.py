"""Checkpoints as JSON in which data never turns into objects, and which gives back exactly what it was given.

One marker key says what is not plain JSON. A plain dict that has the marker as a key is escaped, so that nothing a user or a
model wrote, such as tool arguments, is ever read as a marker. What could not come back as it was is refused when it is written.
"""

import base64
import marshal
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, Final, cast

import orjson
from langchain_core import messages
from langchain_core.messages import BaseMessage
from langchain_core.messages.base import TextAccessor
from langgraph.types import Command, Interrupt, Overwrite, Send
from pydantic import ValidationError

from topics.errors import RejectedError

MARKER: Final = "__sluice__"
ERROR_TEXT_CHARS: Final = 500
ENTRY_BYTES: Final = 300  # of a cached fragment: its key, its places in the order, and their headers

MESSAGES: Final[Mapping[str, type[BaseMessage]]] = {
    kind.__name__: kind
    for kind in (
        messages.AIMessage,
        messages.AIMessageChunk,
        messages.ChatMessage,
        messages.ChatMessageChunk,
        messages.FunctionMessage,
        messages.HumanMessage,
        messages.HumanMessageChunk,
        messages.RemoveMessage,
        messages.SystemMessage,
        messages.SystemMessageChunk,
        messages.ToolMessage,
        messages.ToolMessageChunk,
    )
}
# What LangGraph itself stores, with the fields that make it again.
ORDERS: Final[Mapping[type[Any], tuple[str, ...]]] = {
    Send: ("node", "arg"),
    Interrupt: ("value", "id", "response_schema"),
    Command: ("graph", "update", "resume", "goto"),
    Overwrite: ("value",),
}

_PLAIN: Final = frozenset({str, int, bool, type(None)})
_ORDERS_BY_NAME: Final = {kind.__name__: kind for kind in ORDERS}
_DEFAULTS: Final[Mapping[type[BaseMessage], Mapping[str, Any]]] = {
    kind: {
        name: field.get_default(call_default_factory=True) for name, field in kind.model_fields.items() if not field.is_required()
    }
    for kind in MESSAGES.values()
}


class BadCheckpointError(RejectedError):
    """The stored bytes are not what this serializer writes. Nothing was made of them."""

    code = "bad_checkpoint"


class CheckpointSerializer:
    """Turns state into JSON and back. A message is encoded once and its bytes are used again.

    The cache finds a message by all that is in it, not by its identity: a message that was changed is encoded again, and
    one that was loaded again is not.
    """

    def __init__(self, *, cache_bytes: int = 64 * 1024 * 1024) -> None:
        self._fragments = _Fragments(cache_bytes)

    def dumps(self, value: Any) -> bytes:
        """Encode a value.

        Raises:
            TypeError: A type that would not come back as it is; the text names it.
            ValueError: A number that JSON cannot hold.
        """
        return orjson.dumps(self._encoded(value))

    def loads(self, stored: bytes) -> Any:
        """Decode what `dumps` made.

        Raises:
            BadCheckpointError: Anything else.
        """
        try:
            return _decoded(orjson.loads(stored))
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            kind = "ValidationError" if isinstance(error, ValidationError) else type(error).__name__
            # The cause quotes what was stored, and errors are logged.
            raise BadCheckpointError(f"a stored checkpoint cannot be read ({kind})") from None

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Encode for LangGraph's protocol; the only type is `json`."""
        return "json", self.dumps(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Decode for LangGraph's protocol. Msgpack and pickle are refused by their name, unread."""
        kind, stored = data
        if kind != "json":
            raise BadCheckpointError(f"checkpoint values of type {kind!r} are not read")
        return self.loads(stored)

    def _encoded(self, value: Any) -> Any:
        kind = cast("type[Any]", type(value))
        if kind in _PLAIN:
            return value
        if kind is dict:
            return self._encoded_dict(value)
        if kind is list:
            return [self._encoded(item) for item in value]
        if kind is float:
            return _finite(value)
        if isinstance(value, BaseMessage):
            return self._fragment(value)
        return self._marked(kind, value)

    def _encoded_dict(self, value: dict[Any, Any]) -> dict[str, Any]:
        for key in value:
            if type(key) is not str:
                raise TypeError(f"a dict key of type {type(key).__name__} cannot be stored in a checkpoint: use strings")
        encoded = {key: self._encoded(item) for key, item in value.items()}
        return {MARKER: "dict", "fields": list(encoded.items())} if MARKER in encoded else encoded

    def _marked(self, kind: type[Any], value: Any) -> Any:
        if kind is tuple:
            return {MARKER: "tuple", "items": [self._encoded(item) for item in value]}
        if kind is bytes:
            return {MARKER: "bytes", "base64": base64.b64encode(value).decode()}
        if kind is TextAccessor:
            return str(value)
        if kind in ORDERS:
            _refuse_timeout(value)
            return {MARKER: kind.__name__, "fields": {name: self._encoded(getattr(value, name)) for name in ORDERS[kind]}}
        if isinstance(value, BaseException):
            return {MARKER: "error", "name": kind.__name__, "text": str(value)[:ERROR_TEXT_CHARS]}
        raise TypeError(f"{kind.__module__}.{kind.__qualname__} cannot be stored in a checkpoint: it would come back changed")

    def _fragment(self, message: BaseMessage) -> orjson.Fragment:
        kind = type(message)
        if MESSAGES.get(kind.__name__) is not kind:
            raise TypeError(f"{kind.__module__}.{kind.__qualname__} is not a message type that checkpoints may hold")
        fields = message.__dict__ | (message.__pydantic_extra__ or {})
        key = _fingerprint(kind.__name__, fields)
        return (key and self._fragments.get(key)) or self._new_fragment(kind, fields, key)

    def _new_fragment(self, kind: type[BaseMessage], fields: dict[str, Any], key: bytes | None) -> orjson.Fragment:
        told = self._encoded_dict({name: value for name, value in fields.items() if not _is_default(kind, name, value)})
        encoded = orjson.dumps({MARKER: "message", "kind": kind.__name__, "fields": told})
        return self._fragments.put(key, encoded) if key else orjson.Fragment(encoded)


class _Fragments:
    """Encoded messages by fingerprint, the least used forgotten first."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._size_bytes = 0
        self._kept: OrderedDict[bytes, tuple[orjson.Fragment, int]] = OrderedDict()

    def get(self, key: bytes) -> orjson.Fragment | None:
        kept = self._kept.get(key)
        if kept is None:
            return None
        self._kept.move_to_end(key)
        return kept[0]

    def put(self, key: bytes, encoded: bytes) -> orjson.Fragment:
        # A copy: what orjson gives keeps its whole buffer of kilobytes, and the limit would bound a fraction of what is held.
        fragment = orjson.Fragment(bytes(memoryview(encoded)))
        held_bytes = len(encoded) + ENTRY_BYTES
        self._kept[key] = fragment, held_bytes
        self._size_bytes += held_bytes
        while self._size_bytes > self._limit_bytes:
            _, (_, size_bytes) = self._kept.popitem(last=False)
            self._size_bytes -= size_bytes
        return fragment


def _fingerprint(kind: str, fields: dict[str, Any]) -> bytes | None:
    """A digest of everything in a message, or None when it holds what marshal does not know; such a message is not cached.

    Version 2 of the format depends on values alone; later ones also on who else refers to them.
    """
    try:
        return blake2b(marshal.dumps((kind, fields), 2), digest_size=16).digest()
    except ValueError:
        return None


def _is_default(kind: type[BaseMessage], name: str, value: Any) -> bool:
    default = _DEFAULTS[kind].get(name, ...)
    return type(value) is type(default) and value == default


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value} cannot be stored in a checkpoint: JSON has no such number")
    return value


def _refuse_timeout(value: Any) -> None:
    if isinstance(value, Send) and value.timeout is not None:
        raise TypeError("a Send with a timeout cannot be stored in a checkpoint: give the timeout to the node")


def _decoded(stored: Any) -> Any:
    if isinstance(stored, list):
        return [_decoded(item) for item in cast("list[Any]", stored)]
    if not isinstance(stored, dict):
        return stored
    found = cast("dict[str, Any]", stored)
    if MARKER in found:
        return _DECODERS[found[MARKER]](found)
    return {key: _decoded(item) for key, item in found.items()}


def _dict(found: dict[str, Any]) -> dict[str, Any]:
    return {key: _decoded(item) for key, item in found["fields"]}


def _tuple(found: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(_decoded(item) for item in found["items"])


def _bytes(found: dict[str, Any]) -> bytes:
    return base64.b64decode(found["base64"], validate=True)


def _error(found: dict[str, Any]) -> RuntimeError:
    return RuntimeError(f"{found['name']}: {found['text']}")


def _message(found: dict[str, Any]) -> BaseMessage:
    return MESSAGES[found["kind"]](**_decoded(found["fields"]))


def _order(found: dict[str, Any]) -> Any:
    return _ORDERS_BY_NAME[found[MARKER]](**_decoded(found["fields"]))


_DECODERS: Final[Mapping[str, Callable[[dict[str, Any]], Any]]] = {
    "dict": _dict,
    "tuple": _tuple,
    "bytes": _bytes,
    "error": _error,
    "message": _message,
    **dict.fromkeys(_ORDERS_BY_NAME, _order),
}
