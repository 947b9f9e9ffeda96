"""Spans of single requests to a provider, under whatever run makes them; with what the provider counted, and what that costs."""

from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration
from opentelemetry.trace import SpanKind

from infra.tracing import names, scope
from infra.tracing.scope import Scope


class ModelCall:
    """One request, from its start to the end of its reply. Where nothing is traced it does nothing."""

    __slots__ = ("_finish", "_id", "_input_tokens", "_model", "_output_tokens", "_scope")

    def __init__(self, begun: Scope | None, model: str = "") -> None:
        self._scope = begun
        self._model = model
        self._finish: str | None = None
        self._id: str | None = None
        self._input_tokens: int | None = None
        self._output_tokens: int | None = None

    def said(self, piece: ChatGeneration, *, reply_id: str | None = None) -> None:
        """Take note of a piece of the reply, or of all of it: usage, finish reason and id, never text."""
        message = piece.message
        if self._scope is None or not isinstance(message, AIMessage):
            return
        self._finish = (piece.generation_info or {}).get("finish_reason") or self._finish
        self._id = reply_id or message.id or self._id
        if (usage := message.usage_metadata) is not None:
            self.counted(usage["input_tokens"], usage["output_tokens"])

    def counted(self, input_tokens: int, output_tokens: int) -> None:
        """Take note of what the provider counted."""
        self._input_tokens, self._output_tokens = input_tokens, output_tokens

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None) -> None:
        if self._scope is None:
            return
        span = self._scope.span
        if self._finish:
            span.set_attribute(names.gen_ai.GEN_AI_RESPONSE_FINISH_REASONS, [self._finish])
        if self._id:
            span.set_attribute(names.gen_ai.GEN_AI_RESPONSE_ID, self._id)
        if self._input_tokens is not None and self._output_tokens is not None:
            span.set_attribute(names.gen_ai.GEN_AI_USAGE_INPUT_TOKENS, self._input_tokens)
            span.set_attribute(names.gen_ai.GEN_AI_USAGE_OUTPUT_TOKENS, self._output_tokens)
            if (price := self._scope.prices.get(self._model)) is not None:
                cost = self._input_tokens * price.input_usd_cents + self._output_tokens * price.output_usd_cents
                span.set_attribute(names.COST_MICROCENTS, round(cost))
        if error is not None:
            scope.fail(span, error)
        span.end()


_UNTRACED: Final = ModelCall(None)


def model_call(model: str, address: str | None, *, operation: str = names.CHAT, inputs: int = 1) -> ModelCall:
    """Begin to trace one request.

    Args:
        model: The provider's name of it.
        address: The provider's base URL.
        inputs: How many texts are embedded.
    """
    here = scope.current()
    if here is None:
        return _UNTRACED
    whose = urlsplit(address or "")
    attributes: dict[str, Any] = {
        names.gen_ai.GEN_AI_OPERATION_NAME: operation,
        names.gen_ai.GEN_AI_PROVIDER_NAME: names.PROVIDER,
        names.gen_ai.GEN_AI_REQUEST_MODEL: model,
        names.server_attributes.SERVER_ADDRESS: whose.hostname or "",
        **({names.server_attributes.SERVER_PORT: whose.port} if whose.port else {}),
        **({names.INPUTS: inputs} if operation == names.EMBEDDINGS else {}),
    }
    return ModelCall(here.begin(f"{operation} {model}", attributes, kind=SpanKind.CLIENT), model)
