"""The one chat model that flows are given: it stands for ordered providers, and for what each tenant chose of them.

It is a `ProviderChatModel` so that tools and schemas are bound as everywhere; its calls are made by other clients.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final, Self, TypeVar, cast

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableConfig, ensure_config
from pydantic import PrivateAttr, SecretStr

from infra.clock import SystemClock
from infra.models.breaker import Breaker, BreakerPolicy
from infra.models.door import Door, Trial
from infra.models.fallback import Asked, ChatDoor, Fallback
from infra.models.metering import CHARS_PER_TOKEN, OURS, Call, Meter, Usage
from infra.models.providers import REFUSAL, ProviderChatModel, chat_model, http_client
from infra.models.routing import ProviderEndpoint, TenantChoice, routes_of

T = TypeVar("T")

SERVED_BY: Final = "served_by"
FOR_WHOM: Final = "for_whom"
TRIAL_TEXT: Final = "Say yes."
TRIAL_TOKENS: Final = 16  # of its reply
OUTPUT_TOKENS: Final = 1_000  # of a reply whose length nobody bounds, for the estimate


class GatewayChatModel(ProviderChatModel):
    """See `gateway_model`. A call's metadata names tenant, thread, query, and from `configurable={"model": ...}` its own model."""

    _fallback: Fallback = PrivateAttr()

    @property
    def doors(self) -> Sequence[ChatDoor]:
        """The providers, as they are now."""
        return tuple(self._fallback.doors.values())

    @classmethod
    def over(cls, fallback: Fallback) -> Self:
        """The model in front of these providers."""
        model = cls(
            base_url="http://never-called.invalid",
            api_key=SecretStr("none"),
            model="gateway",
            call_timeout_s=1.0,
            http_async_client=http_client(1.0),
        )
        model._fallback = fallback
        return model

    async def aclose(self) -> None:
        """Close the connections to every provider. The model cannot be used again."""
        await super().aclose()
        for door in self.doors:
            await door.client.aclose()

    def astream(
        self,
        input: LanguageModelInput,  # noqa: A002 -- LangChain's name
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[AIMessageChunk]:
        """As of every model. LangChain gives a stream no run manager, so the metadata goes along with the arguments."""
        metadata = ensure_config(config).get("metadata") or {}
        return super().astream(input, config, stop=stop, **{FOR_WHOM: metadata, **kwargs})

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        """Ask for one whole reply, of the first provider that can give it."""
        metadata = _metadata(kwargs, run_manager)

        async def begin(model: ProviderChatModel, name: str) -> AsyncGenerator[ChatResult]:
            yield await model._agenerate(messages, stop, run_manager, **{**kwargs, "model": name})  # noqa: SLF001 -- see _asked

        asked = _asked(messages, kwargs, metadata, begin=begin, message_of=lambda result: result.generations[0].message)
        async with aclosing(self._fallback.answer(asked)) as replies:
            door, result = await anext(replies)
            async for _ in replies:
                pass  # to its end, so that it is accounted for
        result.generations[0].message.response_metadata[SERVED_BY] = door.name
        return result

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        """Stream the reply of the first provider that begins one."""
        metadata = _metadata(kwargs, run_manager)

        async def begin(model: ProviderChatModel, name: str) -> AsyncGenerator[ChatGenerationChunk]:
            pieces = model._astream(messages, stop, run_manager, **{**kwargs, "model": name})  # noqa: SLF001 -- see _asked
            async with aclosing(cast("AsyncGenerator[ChatGenerationChunk]", pieces)) as chunks:
                async for chunk in chunks:
                    yield chunk

        asked = _asked(messages, kwargs, metadata, begin=begin, message_of=lambda chunk: chunk.message)
        is_first = True
        async with aclosing(self._fallback.answer(asked)) as pieces:
            async for door, piece in pieces:
                if is_first:
                    # Once: LangChain joins the metadata of chunks as text.
                    piece.message.response_metadata[SERVED_BY] = door.name
                    is_first = False
                yield piece


def gateway_model(
    endpoints: Sequence[ProviderEndpoint],
    *,
    model: str,
    tenants: Mapping[str, TenantChoice],
    meter: Meter,
    timeout_s: float,
    concurrency: int,
    breaker: BreakerPolicy | None = None,
) -> GatewayChatModel:
    """A chat model over these providers, in their order. `aclose` it when its loop ends.

    Args:
        model: Our name of the model for everybody who chose no other.
        timeout_s: As for `chat_model`, where a provider has none of its own.
        concurrency: Calls at once in this process.
    Raises:
        ConfigError: A choice that no provider can serve.
    """
    routes = routes_of(endpoints, model=model, tenants=tenants)
    doors = {one.name: _door(one, model=model, meter=meter, timeout_s=timeout_s, breaker=breaker) for one in endpoints}
    return GatewayChatModel.over(Fallback(doors, routes, concurrency=concurrency))


def _door(endpoint: ProviderEndpoint, *, model: str, meter: Meter, timeout_s: float, breaker: BreakerPolicy | None) -> ChatDoor:
    own_name = endpoint.models.get(model) or next(iter(endpoint.models.values()))
    client = chat_model(
        base_url=endpoint.base_url,
        api_key=endpoint.api_key.get_secret_value(),
        model=own_name,
        timeout_s=endpoint.timeout_s or timeout_s,
        max_output_tokens=endpoint.max_output_tokens,
    )
    bound = {"max_completion_tokens": TRIAL_TOKENS}
    call = Call(endpoint.name, own_name, OURS, estimated_tokens([HumanMessage(TRIAL_TEXT)], bound))
    trial = Trial(call, partial(_try, client, bound))
    return Door(endpoint.name, client, trial, SystemClock(), meter, Breaker(breaker or BreakerPolicy()))


async def _try(client: ProviderChatModel, bound: Mapping[str, Any]) -> Usage | None:
    # Not `ainvoke`: a trial belongs to no query, and its tokens must not reach a query's callbacks.
    ask = client._agenerate  # noqa: SLF001 -- as above  # pyright: ignore[reportPrivateUsage] -- as above
    result = await ask([HumanMessage(TRIAL_TEXT)], **bound)
    return _usage(result.generations[0].message)


def _asked(  # the clients' own methods, and not `ainvoke` and `astream`: one call is one run of the callbacks, whoever answers
    messages: Sequence[BaseMessage],
    kwargs: Mapping[str, Any],
    metadata: Mapping[str, Any],
    *,
    begin: Callable[[ProviderChatModel, str], AsyncGenerator[T]],
    message_of: Callable[[T], BaseMessage],
) -> Asked[T]:
    return Asked(
        tenant=str(metadata.get("tenant", "")),
        run=_run(metadata),
        model=kwargs.get("model") or metadata.get("model"),
        tokens=estimated_tokens(messages, kwargs),
        begin=begin,
        says=lambda piece: _says(message_of(piece)),
        usage=lambda piece: _usage(message_of(piece)),
    )


def _run(metadata: Mapping[str, Any]) -> str:
    """A query by its thread: ids of events are their source's own, and those of two threads may be alike."""
    query_id = metadata.get("query")
    return f"{metadata.get('thread', '')}\n{query_id}" if query_id else ""


def _metadata(kwargs: dict[str, Any], run_manager: AsyncCallbackManagerForLLMRun | None) -> Mapping[str, Any]:
    """The metadata of a call, taken out of its arguments where it travelled with them."""
    given = kwargs.pop(FOR_WHOM, None)
    return given if given is not None else run_manager.metadata if run_manager is not None else {}


def estimated_tokens(messages: Sequence[BaseMessage], kwargs: Mapping[str, Any]) -> int:
    """Tokens in and out of a call, rather too many: a quarter of the characters, schemas included, and a whole reply."""
    sent = sum(len(message.text) + len(str(getattr(message, "tool_calls", None) or "")) for message in messages)
    schemas = sum(len(str(kwargs[name])) for name in ("tools", "response_format") if kwargs.get(name))
    bound = kwargs.get("max_completion_tokens") or kwargs.get("max_tokens")
    return (sent + schemas) // CHARS_PER_TOKEN + (bound if isinstance(bound, int) else OUTPUT_TOKENS)


def _says(message: BaseMessage) -> bool:
    pieces = isinstance(message, AIMessageChunk) and message.tool_call_chunks
    calls = isinstance(message, AIMessage) and (message.tool_calls or message.invalid_tool_calls)
    return bool(message.text or pieces or calls or message.additional_kwargs.get(REFUSAL))


def _usage(message: BaseMessage) -> Usage | None:
    counted = message.usage_metadata if isinstance(message, AIMessage) else None
    return Usage(counted["input_tokens"], counted["output_tokens"]) if counted else None
