"""A chat model that plays a script, and refuses what a provider refuses."""

import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.chat_models import agenerate_from_stream
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable


class BadRequestError(Exception):
    """What a provider answers with 400."""


@dataclass
class Turn:
    """One answer: pieces of text, or content blocks, then calls as (id, name, arguments). One that `hangs` never ends."""

    text: Sequence[str | list[Any]] = ()
    calls: Sequence[tuple[str | None, str, dict[str, Any] | str]] = ()
    finish: str | None = None
    usage: tuple[int, int] | None = (10, 5)
    refusal: str | None = None
    error: BaseException | None = None
    hangs: bool = False


def say(*pieces: str, **more: Any) -> Turn:
    return Turn(text=pieces, **more)


def call(*calls: tuple[str | None, str, dict[str, Any] | str], text: Sequence[str] = (), **more: Any) -> Turn:
    return Turn(text=text, calls=calls, **more)


@dataclass
class Script:
    """Turns by order, or a function of the conversation. `prompts` are the conversations that were sent."""

    turns: list[Turn] = field(default_factory=list)
    answer: Callable[[Sequence[BaseMessage]], Turn] | None = None
    prompts: list[list[BaseMessage]] = field(default_factory=list)
    tools: list[str] = field(default_factory=list)
    on_close: Callable[[], None] = lambda: None

    def next(self, messages: Sequence[BaseMessage]) -> Turn:
        self.prompts.append(list(messages))
        if self.answer is not None:
            return self.answer(messages)
        return self.turns.pop(0)


class FakeChatModel(BaseChatModel):
    script: Any

    @property
    def _llm_type(self) -> str:
        return "fake"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, AIMessage]:
        self.script.tools = [tool["function"]["name"] for tool in tools]
        return self.bind(**kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        raise NotImplementedError  # nothing of ours blocks

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,  # noqa: ARG002 whoever wants no stream gets no tokens
        **kwargs: Any,
    ) -> ChatResult:
        return await agenerate_from_stream(self._astream(messages, stop=stop, **kwargs))

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002 the base class's shape
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,  # noqa: ARG002 the base class's shape
    ) -> AsyncIterator[ChatGenerationChunk]:
        refuse_malformed(messages)
        turn = self.script.next(messages)
        for message in chunks_of(turn):
            chunk = ChatGenerationChunk(message=message)
            if run_manager is not None:
                await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk
        if turn.hangs:
            try:
                await anyio.sleep_forever()
            finally:
                self.script.on_close()
        if turn.error is not None:
            raise turn.error


def chunks_of(turn: Turn) -> Iterator[AIMessageChunk]:
    for piece in turn.text:
        yield AIMessageChunk(content=piece)
    if turn.refusal is not None:
        yield AIMessageChunk(content="", additional_kwargs={"refusal": turn.refusal})
    for index, (call_id, name, arguments) in enumerate(turn.calls):
        args = arguments if isinstance(arguments, str) else json.dumps(arguments)
        yield AIMessageChunk(
            content="", tool_call_chunks=[{"type": "tool_call_chunk", "id": call_id, "name": name, "args": args, "index": index}]
        )
    if turn.error is not None or turn.hangs:
        return
    finish = turn.finish or ("tool_calls" if turn.calls else "stop")
    yield AIMessageChunk(content="", response_metadata={"finish_reason": finish})
    if turn.usage is not None:
        tokens_in, tokens_out = turn.usage
        usage = {"input_tokens": tokens_in, "output_tokens": tokens_out, "total_tokens": tokens_in + tokens_out}
        yield AIMessageChunk(content="", usage_metadata=usage)


def refuse_malformed(messages: Sequence[BaseMessage]) -> None:
    """Refuse as OpenAI does: each call answered at once and once, no answer without a call, no id twice in a message."""
    waiting: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in waiting:
                raise BadRequestError(f"no call for the tool answer {message.tool_call_id}")
            waiting.remove(message.tool_call_id)
            continue
        if waiting:
            raise BadRequestError(f"tool calls without an answer: {waiting}")
        if isinstance(message, AIMessage):
            waiting = [str(item["id"]) for item in (*message.tool_calls, *message.invalid_tool_calls)]
            if len(set(waiting)) != len(waiting):
                raise BadRequestError("a call id twice in one message")
    if waiting:
        raise BadRequestError(f"tool calls without an answer: {waiting}")


def obedient(messages: Sequence[BaseMessage]) -> Turn:
    """Refunds what it is told to, and says so afterwards."""
    last = next(index for index in reversed(range(len(messages))) if isinstance(messages[index], HumanMessage))
    text, done = str(messages[last].content), [one for one in messages[last:] if isinstance(one, ToolMessage)]
    if "refund" in text and not done:
        return call((None, "refund", {"order": text, "cents": 100}))
    return say("done ", text)
