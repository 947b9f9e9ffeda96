"""What the provider's wire can do to us, byte for byte."""

import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import anyio
import pytest
from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.messages import AIMessageChunk, RemoveMessage
from langchain_core.runnables import ConfigurableField
from pydantic import BaseModel, SecretStr

from infra.models.gateway import gateway_model
from infra.models.metering import Unmetered
from infra.models.providers import ProviderChatModel, chat_model
from infra.models.routing import ProviderEndpoint
from tests.fakes.wire import Reply, Wire, json_reply, sse_reply, wire
from topics.errors import OutageError, RateLimitedError, RejectedError, SluiceError, TimedOutError, UnavailableError

SECRET_PROMPT = "my card number is 4111"
USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}


@pytest.fixture
async def server() -> AsyncIterator[Wire]:
    async with wire() as server:
        yield server


@pytest.fixture(params=["provider", "gateway"])
async def model(request: pytest.FixtureRequest, server: Wire) -> AsyncIterator[ProviderChatModel]:
    """A provider, and the gateway over it alone: who uses it must not see a difference."""
    model = chat_model(base_url=server.url, api_key="key", model="m", timeout_s=5)
    if request.param == "gateway":
        endpoint = ProviderEndpoint(name="p", base_url=server.url, api_key=SecretStr("key"), models={"m": "m"})
        await model.aclose()
        model = gateway_model([endpoint], model="m", tenants={}, meter=Unmetered(), timeout_s=5, concurrency=8)
    yield model
    await model.aclose()


def completion(message: dict[str, Any] | None = None, *, finish: str | None = "stop", **extra: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": "Hi"} if message is None else {"role": "assistant", **message}
    choices = [{"index": 0, "message": message, "finish_reason": finish}]
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": choices, **extra}


def chunk(delta: dict[str, Any] | None, *, finish: str | None = None, **extra: Any) -> dict[str, Any]:
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices, **extra}


def no_choices(**extra: Any) -> dict[str, Any]:
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], **extra}


def asked_as(kind: str, model: ProviderChatModel) -> Any:
    return model.bind(response_format=response_format()) if kind == "structured" else model


def failure(status: int, *, code: str | None = None, **headers: str) -> Reply:
    error = {"error": {"message": f"bad: {SECRET_PROMPT}", "code": code, "type": None}}
    return json_reply(error, status=status, headers={name.replace("_", "-"): value for name, value in headers.items()})


async def streamed(model: Any, prompt: str = "hello") -> AIMessageChunk:
    whole: AIMessageChunk | None = None
    async with aclosing(model.astream(prompt)) as chunks:
        async for piece in chunks:
            whole = piece if whole is None else whole + piece
    assert whole is not None
    return whole


async def error_of(model: Any, *, stream: bool) -> SluiceError:
    with pytest.raises(SluiceError) as caught:
        await (streamed(model, SECRET_PROMPT) if stream else model.ainvoke(SECRET_PROMPT))
    assert caught.value.__cause__ is not None
    assert "4111" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("how", ["whole", "stream"])
@pytest.mark.parametrize(
    "case",
    [
        (failure(429, code="insufficient_quota"), OutageError, "provider_quota"),
        (failure(402), OutageError, "provider_quota"),
        (failure(401), OutageError, "provider_auth"),
        (failure(403), OutageError, "provider_auth"),
        (failure(404, code="model_not_found"), OutageError, "provider_not_found"),
        (failure(400, code="context_length_exceeded"), RejectedError, "context_too_long"),
        (failure(413), RejectedError, "context_too_long"),
        (failure(400), RejectedError, "provider_refused_request"),
        (failure(422), RejectedError, "provider_refused_request"),
        (failure(408), TimedOutError, "timed_out"),
        (failure(409), UnavailableError, "unavailable"),
        (failure(500), UnavailableError, "unavailable"),
        (failure(503), UnavailableError, "unavailable"),
        (failure(529), UnavailableError, "unavailable"),
    ],
)
async def test_a_status_is_translated_once_without_the_prompt(
    server: Wire, model: ProviderChatModel, how: str, case: tuple[Reply, type[SluiceError], str]
) -> None:
    reply, expected, code = case
    server.answer(reply)
    error = await error_of(model, stream=how == "stream")
    assert type(error) is expected
    assert error.reason_code == code
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "2"}, 2.0),
        ({"retry_after_ms": "250", "retry_after": "2"}, 0.25),
        ({"retry_after": "Mon, 30 Nov 2026 00:00:30 GMT", "date": "Mon, 30 Nov 2026 00:00:00 GMT"}, 30.0),
        ({"retry_after": "Mon, 30 Nov 2026 00:00:30 GMT"}, None),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "nan"}, None),
        ({"retry_after": "-4"}, 0.0),
        ({}, None),
    ],
)
async def test_a_rate_limit_carries_the_wait_that_was_asked(
    server: Wire, model: ProviderChatModel, headers: dict[str, str], seconds: float | None
) -> None:
    server.answer(failure(429, code="rate_limit_exceeded", **headers))
    error = await error_of(model, stream=False)
    assert isinstance(error, RateLimitedError)
    assert error.retry_after_s == seconds


@pytest.mark.parametrize(
    "reply",
    [
        json_reply(completion() | {"choices": []}),
        json_reply(completion() | {"choices": None}),
        json_reply({"id": "c"}),
        json_reply({"error": {"message": SECRET_PROMPT}}),
        json_reply(completion({"content": "Hi"}, finish=None)),
        json_reply(completion({"content": ""})),
        json_reply(completion({"content": []})),
        json_reply([]),
        Reply(b"{not json"),
        Reply(b"<html>proxy</html>", content_type="text/html"),
    ],
)
@pytest.mark.parametrize("kind", ["plain", "structured"])
async def test_a_reply_that_is_no_answer_is_an_error_to_retry(
    server: Wire, model: ProviderChatModel, reply: Reply, kind: str
) -> None:
    server.answer(reply)
    asked = asked_as(kind, model)
    with pytest.raises(UnavailableError) as caught:
        await asked.ainvoke("hello")
    assert caught.value.reason_code == "provider_bad_reply"


@pytest.mark.parametrize(
    "reply",
    [
        sse_reply([]),
        sse_reply([], done=False),
        sse_reply(["{broken"]),
        sse_reply([chunk({"content": "Hi"})]),
        sse_reply([chunk({"content": "Hi"})], done=False),
        sse_reply([chunk({"content": ""}, finish="stop")]),
        sse_reply([no_choices(usage=USAGE)]),
        Reply(b": ping\n\n: ping\n\ndata: [DONE]\n\n", content_type="text/event-stream"),
    ],
)
@pytest.mark.parametrize("kind", ["plain", "structured"])
async def test_a_stream_that_is_no_answer_is_an_error_to_retry(
    server: Wire, model: ProviderChatModel, reply: Reply, kind: str
) -> None:
    server.answer(reply)
    asked = asked_as(kind, model)
    with pytest.raises(UnavailableError) as caught:
        await streamed(asked)
    assert caught.value.reason_code == "provider_bad_reply"


async def test_a_connection_lost_in_the_stream_is_an_error_after_the_pieces(server: Wire, model: ProviderChatModel) -> None:
    server.answer(sse_reply([chunk({"content": "Dear "})], done=False, cut=True))
    pieces: list[str] = []

    async def read() -> None:
        async for piece in model.astream("hello"):
            pieces.append(piece.text)  # noqa: PERF401 - a comprehension would lose the pieces with the error

    with pytest.raises(UnavailableError):
        await read()
    assert "".join(pieces) == "Dear "


async def test_a_reader_that_leaves_closes_the_connection(server: Wire, model: ProviderChatModel) -> None:
    server.answer(sse_reply([chunk({"content": "Dear "})], done=False, stall=True))
    async with aclosing(model.astream("hello")) as pieces:
        assert (await anext(pieces)).text == "Dear "
        assert server.connections == 1
    with anyio.fail_after(2):
        while server.connections:
            await anyio.sleep(0.001)


async def test_a_call_that_is_cancelled_closes_the_connection_and_stays_cancelled(server: Wire, model: ProviderChatModel) -> None:
    server.answer(Reply(b"", cut=True, stall=True))
    async with anyio.create_task_group() as group:
        group.start_soon(model.ainvoke, "hello")
        with anyio.fail_after(2):
            while not server.requests:
                await anyio.sleep(0.001)
        group.cancel_scope.cancel()
    with anyio.fail_after(2):
        while server.connections:
            await anyio.sleep(0.001)


@pytest.mark.parametrize("model", ["provider"], indirect=True)
async def test_the_model_name_can_be_chosen_at_call_time(server: Wire, model: ProviderChatModel) -> None:
    server.answer(json_reply(completion()))
    chosen = model.configurable_fields(model_name=ConfigurableField(id="model"))
    await chosen.ainvoke("hello", {"configurable": {"model": "big"}})
    await chosen.ainvoke("hello")
    assert [request["model"] for request in server.requests] == ["big", "m"]


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    model = chat_model(base_url="http://127.0.0.1:9/v1", api_key="key", model="m", timeout_s=5)
    assert type(await error_of(model, stream=False)) is UnavailableError
    assert type(await error_of(model, stream=True)) is UnavailableError
    await model.aclose()


@pytest.mark.parametrize("how", ["whole", "stream"])
async def test_silence_ends_in_a_timeout(server: Wire, how: str) -> None:
    body = sse_reply([chunk({"content": "Dear "})], done=False, stall=True) if how == "stream" else Reply(b"", cut=True, stall=True)
    server.answer(body)
    model = chat_model(base_url=server.url, api_key="key", model="m", timeout_s=0.2)
    assert type(await error_of(model, stream=how == "stream")) is TimedOutError
    await model.aclose()


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("insufficient_quota", OutageError),
        ("rate_limit_exceeded", RateLimitedError),
        ("context_length_exceeded", RejectedError),
        ("server_error", UnavailableError),
        (None, UnavailableError),
    ],
)
async def test_an_error_inside_a_stream_keeps_its_meaning(
    server: Wire, model: ProviderChatModel, code: str | None, expected: type[SluiceError]
) -> None:
    server.answer(sse_reply([chunk({"content": "Dear "}), {"error": {"message": SECRET_PROMPT, "code": code}}]))
    assert type(await error_of(model, stream=True)) is expected


async def test_a_stream_may_begin_without_choices(server: Wire, model: ProviderChatModel) -> None:
    server.answer(sse_reply([no_choices(), chunk({"role": "assistant", "content": "Hi"}), chunk({}, finish="stop")]))
    assert (await streamed(model)).text == "Hi"


@pytest.mark.parametrize("delta", [{}, None])
async def test_a_finish_reason_on_an_empty_delta_counts(
    server: Wire, model: ProviderChatModel, delta: dict[str, Any] | None
) -> None:
    server.answer(sse_reply([chunk({"content": "Hi"}), chunk(delta, finish="length")]))
    assert (await streamed(model)).response_metadata["finish_reason"] == "length"


@pytest.mark.parametrize("kind", ["plain", "structured"])
async def test_refusal_deltas_are_kept_once(server: Wire, model: ProviderChatModel, kind: str) -> None:
    server.answer(sse_reply([chunk({"refusal": "I can't "}), chunk({"refusal": "do that."}), chunk({}, finish="stop")]))
    asked = asked_as(kind, model)
    whole = await streamed(asked)
    assert whole.additional_kwargs["refusal"] == "I can't do that."
    assert whole.text == ""


async def test_a_refusal_is_kept_and_an_absent_one_is_absent(server: Wire, model: ProviderChatModel) -> None:
    server.answer(
        json_reply(completion({"content": None, "refusal": "No."})), json_reply(completion({"content": "Hi", "refusal": None}))
    )
    assert (await model.ainvoke("hello")).additional_kwargs["refusal"] == "No."
    assert "refusal" not in (await model.ainvoke("hello")).additional_kwargs


@pytest.mark.parametrize(
    "usage",
    [None, {}, {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}, {"prompt_tokens": None, "completion_tokens": None}],
)
async def test_unknown_usage_is_none_and_never_zero(server: Wire, model: ProviderChatModel, usage: Any) -> None:
    stream = sse_reply([chunk({"content": "Hi"}), chunk({}, finish="stop"), no_choices(usage=usage)])
    server.answer(json_reply(completion(usage=usage)), stream)
    assert (await model.ainvoke("hello")).usage_metadata is None
    assert (await streamed(model)).usage_metadata is None


@pytest.mark.parametrize("kind", ["plain", "structured"])
async def test_known_usage_is_counted_once(server: Wire, model: ProviderChatModel, kind: str) -> None:
    stream = sse_reply([chunk({"content": '{"a": 1}'}), chunk({}, finish="stop"), no_choices(usage=USAGE)])
    server.answer(json_reply(completion({"content": '{"a": 1}'}, usage=USAGE)), stream)
    asked = asked_as(kind, model)
    for message in (await asked.ainvoke("hello"), await streamed(asked)):
        assert (message.usage_metadata["input_tokens"], message.usage_metadata["output_tokens"]) == (5, 2)
    assert server.requests[1]["stream_options"] == {"include_usage": True}


async def test_text_cut_inside_characters_on_the_wire_is_whole_again(server: Wire, model: ProviderChatModel) -> None:
    text = "Grüße 👩‍👩‍👧 שלום"
    server.answer(sse_reply([chunk({"content": text[:9]}), chunk({"content": text[9:]}), chunk({}, finish="stop")], piece=7))
    assert (await streamed(model)).text == text


async def test_reasoning_blocks_are_no_text(server: Wire, model: ProviderChatModel) -> None:
    blocks = [{"type": "thinking", "thinking": "internal note"}, {"type": "text", "text": "Hello"}]
    server.answer(json_reply(completion({"content": blocks})))
    assert (await model.ainvoke("hello")).text == "Hello"


async def test_tool_calls_without_an_index_are_put_together(server: Wire, model: ProviderChatModel) -> None:
    first = [{"id": "c1", "type": "function", "function": {"name": "refund", "arguments": '{"cents"'}}]
    rest = [{"function": {"arguments": ": 1}"}}]
    server.answer(sse_reply([chunk({"tool_calls": first}), chunk({"tool_calls": rest}), chunk({}, finish="tool_calls")]))
    bound = model.bind_tools([{"type": "function", "function": {"name": "refund", "parameters": {"type": "object"}}}])
    whole = await streamed(bound)
    assert [(call["name"], call["args"]) for call in whole.tool_calls] == [("refund", {"cents": 1})]


async def test_every_path_translates(server: Wire, model: ProviderChatModel) -> None:
    server.answer(failure(503))
    for asked in (model.bind_tools([Answer]), model.with_structured_output(Answer), model.with_structured_output(schema())):
        with pytest.raises(UnavailableError):
            await asked.ainvoke("hello")
    results = await model.abatch(["a", "b"], return_exceptions=True)
    assert [type(result) for result in results] == [UnavailableError, UnavailableError]


@pytest.mark.parametrize(("finish", "code"), [("length", "truncated"), ("content_filter", "filtered")])
async def test_a_structured_answer_that_was_cut_is_rejected(server: Wire, model: ProviderChatModel, finish: str, code: str) -> None:
    server.answer(json_reply(completion({"content": '{"a"'}, finish=finish)))
    with pytest.raises(RejectedError) as caught:
        await model.with_structured_output(schema()).ainvoke("hello")
    assert caught.value.reason_code == code


async def test_structured_output_gives_the_value(server: Wire, model: ProviderChatModel) -> None:
    server.answer(json_reply(completion({"content": '{"a": 1}'})))
    assert await model.with_structured_output(schema(), method="json_schema", strict=True).ainvoke("hello") == {"a": 1}
    assert await model.with_structured_output(Answer).ainvoke("hello") == Answer(a=1)
    assert server.requests[0]["response_format"]["json_schema"]["strict"] is True


async def test_messages_that_fit_no_request_are_rejected_before_it(server: Wire, model: ProviderChatModel) -> None:
    server.answer(json_reply(completion()))
    with pytest.raises(RejectedError):
        await model.ainvoke([RemoveMessage(id="x")])
    assert server.requests == []


async def test_callbacks_tags_and_metadata_reach_the_call(server: Wire, model: ProviderChatModel) -> None:
    class Witness(AsyncCallbackHandler):
        def __init__(self) -> None:
            self.tokens: list[str] = []
            self.started: list[tuple[Any, Any]] = []
            self.errors: list[BaseException] = []

        async def on_chat_model_start(self, *_args: Any, tags: Any = None, metadata: Any = None, **_kwargs: Any) -> None:
            self.started.append((tags, (metadata or {}).get("tenant")))

        async def on_llm_new_token(self, token: str, **_kwargs: Any) -> None:
            self.tokens.append(token)

        async def on_llm_error(self, error: BaseException, **_kwargs: Any) -> None:
            self.errors.append(error)

    witness = Witness()
    config: Any = {"callbacks": [witness], "tags": ["acme"], "metadata": {"tenant": "acme"}}
    server.answer(sse_reply([chunk({"content": "Hi"}), chunk({}, finish="stop")]), failure(503))
    _ = [piece async for piece in model.astream("hello", config)]
    with pytest.raises(UnavailableError):
        await model.ainvoke("hello", config)
    assert "".join(witness.tokens) == "Hi"
    assert witness.started == [(["acme"], "acme")] * 2
    assert [type(error) for error in witness.errors] == [UnavailableError]


async def test_the_text_that_streams_is_the_text_that_is_whole(server: Wire, model: ProviderChatModel) -> None:
    pieces = ["Dear ", "customer", ",\n", "hi"]
    stream = sse_reply([*[chunk({"content": piece}) for piece in pieces], chunk({}, finish="stop")])
    server.answer(stream, json_reply(completion({"content": "".join(pieces)})))
    assert (await streamed(model)).text == (await model.ainvoke("hello")).text


def test_a_blocking_call_is_refused() -> None:
    model = chat_model(base_url="http://127.0.0.1:9/v1", api_key="key", model="m", timeout_s=5)
    with pytest.raises(NotImplementedError):
        model.invoke("hello")


def test_the_key_is_not_shown() -> None:
    model = chat_model(base_url="http://127.0.0.1:9/v1", api_key="sk-secret", model="m", timeout_s=5)
    assert "sk-secret" not in repr(model)
    assert "sk-secret" not in json.dumps(model.to_json(), default=str)


class Answer(BaseModel):
    a: int


def schema() -> dict[str, Any]:
    properties = {"a": {"type": "integer"}}
    return {
        "title": "answer",
        "description": "x",
        "type": "object",
        "properties": properties,
        "required": ["a"],
        "additionalProperties": False,
    }


def response_format() -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema(), "strict": True}}
