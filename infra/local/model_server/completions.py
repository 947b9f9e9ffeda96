"""The wire format of chat completions: what a request asks for, and a reply as one body or as chunks."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

import orjson

Json = dict[str, Any]
Role = Literal["system", "developer", "user", "assistant", "tool"]

ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
ARGUMENT_PIECE_CHARS: Final = 12
_PIECES: Final = re.compile(r"\s*\S{1,16}|\s+\Z")


class BadRequestError(Exception):
    """A request that a provider answers with 400."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call as a model writes it. `arguments` as text goes out as it is, valid JSON or not; without an id it gets one."""

    name: str
    arguments: Mapping[str, Any] | str
    call_id: str | None = None

    def arguments_json(self) -> str:
        """The arguments as they travel."""
        if isinstance(self.arguments, str):
            return self.arguments
        return orjson.dumps(dict(self.arguments)).decode()


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model says. Without a finish reason, `tool_calls` or `stop` fits. `cut`: its text as it is to be cut into chunks."""

    text: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    refusal: str | None = None
    finish_reason: str | None = None
    cut: tuple[str, ...] = ()

    @property
    def finish(self) -> str:
        """The finish reason that goes out."""
        return self.finish_reason or ("tool_calls" if self.tool_calls else "stop")


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a request, its content joined to text."""

    role: str
    text: str
    calls: tuple[str, ...] = ()
    call_ids: tuple[str, ...] = ()
    answers: str | None = None


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A chat request as far as the brain needs it.

    `tools` are JSON schemas of arguments by tool name. `must_call`: a tool's name, or True for any one.
    """

    model: str
    messages: tuple[Message, ...]
    tools: Mapping[str, Json] = field(default_factory=dict[str, Json])
    must_call: str | bool = False
    schema: Json | None = None
    wants_json: bool = False
    stream: bool = False
    include_usage: bool = False

    @property
    def asked(self) -> str:
        """The last user message; empty when there is none."""
        return next((message.text for message in reversed(self.messages) if message.role == "user"), "")

    @property
    def since_asked(self) -> tuple[Message, ...]:
        """The messages after the last user message."""
        last = max((index for index, message in enumerate(self.messages) if message.role == "user"), default=-1)
        return self.messages[last + 1 :]

    @property
    def asked_before(self) -> tuple[str, ...]:
        """Earlier user messages, oldest first."""
        return tuple(message.text for message in self.messages if message.role == "user")[:-1]


def read_request(body: Json) -> ChatRequest:
    """Understand a request body.

    Raises:
        BadRequestError: A provider would refuse it: no model, no messages, an unknown role, or a tool call without its answer.
    """
    model, raw = body.get("model"), body.get("messages")
    if not isinstance(model, str) or not model:
        raise BadRequestError("you must provide a model parameter")
    if not isinstance(raw, list) or not raw:
        raise BadRequestError("'messages' must be a list with at least one message")
    messages = tuple(_message(item, index) for index, item in enumerate(cast("list[Any]", raw)))
    _check_tool_messages(messages)
    choice = body.get("tool_choice", "auto")
    response_format = cast("Json", body.get("response_format") or {})
    return ChatRequest(
        model=model,
        messages=messages,
        tools={} if choice == "none" else _tools(body),
        must_call=_must_call(choice),
        schema=cast("Json", response_format["json_schema"]).get("schema") if "json_schema" in response_format else None,
        wants_json=response_format.get("type") == "json_object",
        stream=bool(body.get("stream")),
        include_usage=bool(cast("Json", body.get("stream_options") or {}).get("include_usage")),
    )


@dataclass(frozen=True, slots=True)
class Stamp:
    """What every body and chunk of one completion repeats."""

    completion_id: str
    created: int
    model: str

    def head(self, kind: str) -> Json:
        """The first fields of a body or chunk."""
        return {"id": self.completion_id, "object": kind, "created": self.created, "model": self.model}

    def call_id(self, call: ToolCall, index: int) -> str:
        """The call's own id, or one that no other completion uses."""
        return call.call_id or f"call_{self.completion_id.removeprefix('chatcmpl-')}{index}"


def usage_of(request: ChatRequest, reply: Reply) -> Json:
    """Tokens, counted as a quarter of the characters."""
    asked = sum(len(message.text) + sum(map(len, message.calls)) for message in request.messages)
    said = len(reply.text or "") + sum(len(call.name) + len(call.arguments_json()) for call in reply.tool_calls)
    prompt, completion = max(1, asked // 4), max(1, said // 4)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def completion(stamp: Stamp, reply: Reply, usage: Json | None) -> Json:
    """A reply as one body."""
    message: Json = {"role": "assistant", "content": reply.text, "refusal": reply.refusal}
    if reply.tool_calls:
        message["tool_calls"] = [_full_call(stamp, call, index) for index, call in enumerate(reply.tool_calls)]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reply.finish}
    body = stamp.head("chat.completion") | {"choices": [choice]}
    return body if usage is None else body | {"usage": usage}


def deltas(stamp: Stamp, reply: Reply) -> Iterator[Json]:
    """A reply piece by piece: words, then each call's name, then its arguments."""
    for piece in reply.cut or pieces(reply.text or ""):
        yield {"content": piece}
    for piece in pieces(reply.refusal or ""):
        yield {"refusal": piece}
    for index, call in enumerate(reply.tool_calls):
        opened = _full_call(stamp, call, index)
        arguments = opened["function"]["arguments"]
        opened["function"]["arguments"] = ""
        yield {"tool_calls": [{"index": index} | opened]}
        for start in range(0, len(arguments), ARGUMENT_PIECE_CHARS):
            piece = arguments[start : start + ARGUMENT_PIECE_CHARS]
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def chunk(stamp: Stamp, delta: Json, *, finish_reason: str | None = None) -> Json:
    """One chunk of a stream."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    return stamp.head("chat.completion.chunk") | {"choices": [choice]}


def event(data: Json | bytes) -> bytes:
    """One server-sent event."""
    return b"data: " + (data if isinstance(data, bytes) else orjson.dumps(data)) + b"\n\n"


def pieces(text: str) -> list[str]:
    """Cut text into words with the blanks before them; long words into parts. Joined, they are the text."""
    return _PIECES.findall(text)


def error_body(message: str, *, kind: str, code: str | None = None) -> Json:
    """An error as providers write it."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def _full_call(stamp: Stamp, call: ToolCall, index: int) -> Json:
    function = {"name": call.name, "arguments": call.arguments_json()}
    return {"id": stamp.call_id(call, index), "type": "function", "function": function}


def _message(raw: Any, index: int) -> Message:
    message = cast("Json", raw) if isinstance(raw, dict) else {}
    role = message.get("role")
    if role not in ROLES:
        raise BadRequestError(f"messages[{index}].role: unknown role {role!r}")
    calls = cast("list[Json]", message.get("tool_calls") or [])
    return Message(
        role=cast("str", role),
        text=_text_of(message.get("content")),
        calls=tuple(cast("str", call["function"]["name"]) for call in calls),
        call_ids=tuple(cast("str", call["id"]) for call in calls),
        answers=message.get("tool_call_id"),
    )


def _text_of(content: Any) -> str:
    if isinstance(content, list):
        return "".join(_text_of(part) for part in cast("list[Any]", content))
    if isinstance(content, dict):
        return str(cast("Json", content).get("text", ""))
    return content if isinstance(content, str) else ""


def _check_tool_messages(messages: Sequence[Message]) -> None:
    """Hold the rule every provider holds: each call is answered once, directly after the message that makes it."""
    open_ids: set[str] = set()
    for index, message in enumerate(messages):
        if message.role == "tool":
            if message.answers not in open_ids:
                raise BadRequestError(f"messages[{index}]: a tool message must answer a call of the assistant message before it")
            open_ids.remove(message.answers)
            continue
        if open_ids:
            break
        open_ids = set(message.call_ids)
        if len(open_ids) < len(message.call_ids):
            raise BadRequestError(f"messages[{index}].tool_calls: two calls share an id")
    if open_ids:
        raise BadRequestError(f"tool calls without a tool message that answers them: {', '.join(sorted(open_ids))}")


def _tools(body: Json) -> dict[str, Json]:
    tools = cast("list[Json]", body.get("tools") or [])
    functions = [cast("Json", tool["function"]) for tool in tools if tool.get("type") == "function"]
    return {function["name"]: cast("Json", function.get("parameters") or {}) for function in functions}


def _must_call(choice: Any) -> str | bool:
    if isinstance(choice, dict):
        return str(cast("Json", choice)["function"]["name"])
    return choice == "required"
