"""A chat model behind any OpenAI-compatible endpoint, with errors that have a known fate and replies that are checked.

What the stock client lets through and this one does not: a stream that was cut without a finish reason, an empty answer,
`choices` that are null or empty, refusals that arrive as deltas, tool calls without an index, usage counted as 0.
"""

import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from functools import cache
from typing import Any, Final, Self, cast

import anyio
import httpx
import openai
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_openai import ChatOpenAI
from pydantic import SecretStr, model_validator

from infra.models.plain_streams import PlainStreams
from infra.models.provider_errors import bad_reply, translated
from infra.tracing.model_calls import ModelCall, model_call
from topics.errors import RejectedError

REFUSAL: Final = "refusal"
REPLY_ID: Final = "reply_id"  # the provider's own name of a reply, under which its log can be asked

_CUTS: Final = {"length": "truncated", "content_filter": "filtered"}


class ProviderChatModel(ChatOpenAI):
    """`ChatOpenAI` on the chat completions API, asynchronous only; see `chat_model`."""

    call_timeout_s: float

    @model_validator(mode="after")
    def _stream_plainly(self) -> Self:
        self.async_client = PlainStreams(cast("openai.AsyncOpenAI", self.root_async_client))
        return self

    async def aclose(self) -> None:
        """Close the connections. The model cannot be used again."""
        await cast("openai.AsyncOpenAI", self.root_async_client).close()

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        """Ask for one whole reply, within the timeout for the whole call."""
        with self._call(kwargs) as call, translated(), anyio.fail_after(self.call_timeout_s):
            result = await super()._agenerate(messages, stop, run_manager, **kwargs)
            call.said(result.generations[0], reply_id=(result.llm_output or {}).get("id"))
        if "response_format" in kwargs:
            _check_not_cut((result.generations[0].generation_info or {}).get("finish_reason"))
        return result

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        """Stream a reply; the timeout is the longest gap between two chunks."""
        seen = _Seen()
        with self._call(kwargs) as call, translated():
            pieces = cast("AsyncGenerator[ChatGenerationChunk]", super()._astream(messages, stop, run_manager, **kwargs))
            async with aclosing(pieces) as chunks:
                async for chunk in chunks:
                    seen.add(chunk)
                    call.said(chunk, reply_id=_taken_reply_id(chunk))
                    yield chunk
            seen.check()
        if "response_format" in kwargs:
            _check_not_cut(seen.finish_reason)

    def _call(self, kwargs: Mapping[str, Any]) -> ModelCall:
        return model_call(str(kwargs.get("model") or self.model_name), self.openai_api_base)

    def _generate(self, *_args: Any, **_kwargs: Any) -> ChatResult:
        raise NotImplementedError("use ainvoke, astream or abatch: a blocking call would stop every other record")

    def _stream(self, *_args: Any, **_kwargs: Any) -> Any:
        raise NotImplementedError("use astream: a blocking call would stop every other record")

    def _get_request_payload(self, input_: Any, *, stop: list[str] | None = None, **kwargs: Any) -> dict[str, Any]:
        """Build the request; what cannot be built is the caller's fault, not the provider's."""
        try:
            payload = super()._get_request_payload(input_, stop=stop, **kwargs)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] -- a bare dict there
        except (TypeError, KeyError, ValueError) as error:
            raise RejectedError("these messages cannot be put into a request", code="bad_messages") from error
        return _without_sdk_parsing(cast("dict[str, Any]", payload))

    def _create_chat_result(self, response: Any, generation_info: dict[str, Any] | None = None) -> ChatResult:
        """Read a whole reply, with unknown usage as None and no empty refusal."""
        if not isinstance(response, dict) and not getattr(response, "choices", None):
            raise bad_reply("the reply has no choices")
        result = super()._create_chat_result(response, generation_info)  # pyright: ignore[reportUnknownMemberType] - a bare dict there
        if not result.generations:
            raise bad_reply("the reply has no choices")
        message = result.generations[0].message
        _keep_only_real_refusal(message)
        if isinstance(message, AIMessage) and not _is_known((result.llm_output or {}).get("token_usage")):
            message.usage_metadata = None
        seen = _Seen()
        seen.add_message(message, (result.generations[0].generation_info or {}).get("finish_reason"))
        seen.check()
        return result

    def _convert_chunk_to_generation_chunk(
        self, chunk: dict[str, Any], default_chunk_class: type, base_generation_info: dict[str, Any] | None
    ) -> ChatGenerationChunk | None:
        """Read one piece of a stream, with its refusal text kept and its gaps filled in."""
        delta = _mended_delta(chunk)
        if not _is_known(chunk.get("usage")):
            chunk = {**chunk, "usage": None}
        piece = super()._convert_chunk_to_generation_chunk(  # pyright: ignore[reportUnknownMemberType] - a bare dict there
            chunk, default_chunk_class, base_generation_info
        )
        if piece is None:
            return None
        if refusal := delta.get(REFUSAL):
            piece.message.additional_kwargs[REFUSAL] = refusal
        # Beside the message, whose own id is its run's: with another one in some chunks a stream would look like two turns.
        piece.generation_info = {**(piece.generation_info or {}), REPLY_ID: chunk.get("id")}
        return piece

    def _get_generation_chunk_from_completion(self, completion: Any) -> ChatGenerationChunk:
        """Read the summary that ends a structured stream; its refusal was already streamed."""
        piece = super()._get_generation_chunk_from_completion(completion)
        piece.message.additional_kwargs.pop(REFUSAL, None)
        return piece


def chat_model(
    *,
    base_url: str,
    api_key: str,
    model: str,
    timeout_s: float,
    max_retries: int = 0,
    temperature: float | None = None,
    max_output_tokens: int | None = None,
) -> ProviderChatModel:
    """A chat model on one endpoint. `aclose` it when its loop ends.

    Args:
        timeout_s: Seconds for a whole call; when streaming, for the first chunk and for each gap after it.
        max_retries: Retries inside the client. 0, because the runtime's lane is the one layer that retries.
    Raises (from every call; nothing was changed anywhere):
        RateLimitedError, UnavailableError, TimedOutError, OutageError, RejectedError: see `provider_errors.translated`.
    """
    return ProviderChatModel(
        base_url=base_url,
        api_key=SecretStr(api_key),
        model=model,
        timeout=timeout_s,
        call_timeout_s=timeout_s,
        stream_chunk_timeout=timeout_s,
        max_retries=max_retries,
        temperature=temperature,
        max_completion_tokens=max_output_tokens,
        stream_usage=True,
        use_responses_api=False,
        # The stock client shares one cached pool between event loops, and nobody may close it.
        http_async_client=http_client(timeout_s),
    )


def http_client(timeout_s: float) -> openai.DefaultAsyncHttpxClient:
    """A pool of connections for one provider."""
    return openai.DefaultAsyncHttpxClient(timeout=timeout_s, verify=_tls())


@cache
def _tls() -> ssl.SSLContext:
    """Read once: reading all certificates takes longer than a call."""
    return httpx.create_ssl_context()


class _Seen:
    """What a reply has shown so far, to tell a whole answer from a cut or an empty one."""

    def __init__(self) -> None:
        self.finish_reason: str | None = None
        self._said_anything = False

    def add(self, chunk: ChatGenerationChunk) -> None:
        self.add_message(chunk.message, (chunk.generation_info or {}).get("finish_reason"))

    def add_message(self, message: BaseMessage, finish_reason: str | None) -> None:
        self.finish_reason = finish_reason or self.finish_reason
        calls = isinstance(message, AIMessage) and (message.tool_calls or message.invalid_tool_calls)
        pieces = isinstance(message, AIMessageChunk) and message.tool_call_chunks
        self._said_anything = bool(self._said_anything or message.text or calls or pieces or message.additional_kwargs.get(REFUSAL))

    def check(self) -> None:
        """Raise UnavailableError for a reply that is no answer."""
        if self.finish_reason is None:
            raise bad_reply("the reply ended without a finish reason")
        if self.finish_reason in {"stop", "tool_calls"} and not self._said_anything:
            raise bad_reply("the reply is empty")


def _taken_reply_id(chunk: ChatGenerationChunk) -> str | None:
    found: object = (chunk.generation_info or {}).pop(REPLY_ID, None)
    return found if isinstance(found, str) else None


def _without_sdk_parsing(payload: dict[str, Any]) -> dict[str, Any]:
    """Send a schema past the SDK. Its parsing stream fails on chunks without a role, and asserts on a stream without any."""
    if not isinstance(payload.get("response_format"), dict):
        return payload
    extra: dict[str, Any] = {**(payload.get("extra_body") or {}), "response_format": payload["response_format"]}
    return {**{name: value for name, value in payload.items() if name != "response_format"}, "extra_body": extra}


def _check_not_cut(finish_reason: str | None) -> None:
    """Refuse half a JSON document, even one that parses."""
    if finish_reason in _CUTS:
        raise RejectedError("the structured answer was not finished", code=_CUTS[finish_reason])


def _is_known(usage: Any) -> bool:
    """Whether usage is a count. Some endpoints send nulls or zeros, and a budget must not read those as free."""
    if not isinstance(usage, Mapping):
        return False
    counts = cast("Mapping[str, Any]", usage)
    return bool(counts.get("prompt_tokens")) and isinstance(counts.get("completion_tokens"), int)


def _keep_only_real_refusal(message: BaseMessage) -> None:
    if not message.additional_kwargs.get(REFUSAL):
        message.additional_kwargs.pop(REFUSAL, None)


def _mended_delta(chunk: dict[str, Any]) -> dict[str, Any]:
    """The delta of a chunk's first choice, in place: never null, each tool call with an index and a function.

    The stock client drops the finish reason of a null delta, and cannot join the pieces of a tool call without an index.
    """
    structured = cast("dict[str, Any]", chunk.get("chunk") or {})
    choices = cast("list[dict[str, Any]]", chunk.get("choices") or structured.get("choices") or [])
    if not choices:
        return {}
    delta = cast("dict[str, Any]", choices[0].get("delta") or {})
    choices[0]["delta"] = delta
    for position, call in enumerate(cast("list[dict[str, Any]]", delta.get("tool_calls") or [])):
        if call.get("index") is None:
            call["index"] = position
        call["function"] = call.get("function") or {}
    return delta
