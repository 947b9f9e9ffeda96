"""The rolling summary: exchanges that no longer fit are folded into it by one call of the model, and only then are they let go.

What is folded travels as JSON on lines of its own, and the summary is shown as a record to read: text in either was written by
customers, tools and a model that read them, and gives no orders.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import anyio
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langgraph.constants import TAG_NOSTREAM
from langgraph.runtime import Runtime

from flows import answer_filter, history, prompts, streaming
from flows.agent import search
from flows.agent.parts import AgentLimits, AgentParts
from flows.agent.state import AgentState, Folding, OutcomeRecord, RunContext
from topics.errors import OutageError, RejectedError, RetryableError, UnavailableError
from topics.text import shorten

CHARS_PER_TOKEN: Final = 4
WORDS_PER_TOKEN: Final = 0.6
MAX_SAID_CHARS: Final = 2_000
MAX_RESULT_CHARS: Final = 600
MAX_FOUND_CHARS: Final = 200  # passages can be searched again
FORGET_AT: Final = 4  # times the history's bound, before exchanges go without a summary
FORGOTTEN: Final = "(Some earlier exchanges were let go without a summary.)"
NO_FOLDING: Final[Folding] = {"tries": 0, "input_tokens": 0, "output_tokens": 0}

_log = logging.getLogger(__name__)
_PROMPT: Final = ChatPromptTemplate.from_messages(  # pyright: ignore[reportUnknownMemberType] -- its parameters are loosely typed
    [
        ("system", prompts.SUMMARY_RULES),
        ("human", "<summary>\n{summary}\n</summary>\n<exchanges>\n{exchanges}\n</exchanges>"),
    ]
)


class Summary(NamedTuple):
    """A model's summary, and what it cost; None where it did not say."""

    text: str
    input_tokens: int | None
    output_tokens: int | None


def summary_chain(model: BaseChatModel) -> Runnable[dict[str, Any], Summary]:
    """Prompt, model, reader. Its chunks are marked as not to be streamed: they are nobody's answer."""
    chain = _PROMPT | model | RunnableLambda(_read)
    return chain.with_config(tags=[TAG_NOSTREAM, "summary"], run_name="summary")


def _read(message: AIMessage) -> Summary:
    text, usage = streaming.storable_text(streaming.text_of(message)).strip(), message.usage_metadata
    finish = message.response_metadata.get("finish_reason")
    if not text or message.additional_kwargs.get("refusal") or finish == "content_filter":
        raise UnavailableError("the model gave no summary")
    return Summary(text, usage["input_tokens"] if usage else None, usage["output_tokens"] if usage else None)


def is_due(state: AgentState, limits: AgentLimits) -> bool:
    """Whether a fold comes next: after a query whose thread has outgrown the bound; and before a call, once in a query."""
    if not limits.summary_tokens:
        return False
    messages = state["messages"]
    if state.get("outcome") is None and (folding_of(state)["tries"] or history.open_call_ids(messages)):
        return False
    return count_tokens_approximately(messages) > limits.history_tokens and len(history.exchanges(messages)) > 1


def folding_of(state: AgentState) -> Folding:
    """What folding came to in this query. Threads of older builds have no such key."""
    return state.get("folding") or NO_FOLDING


def foldable(messages: Sequence[AnyMessage], limits: AgentLimits) -> list[AnyMessage]:
    """The exchanges to fold: all but the newest that fill half of the bound, so that not every query folds.

    Oldest first, as many as one call of the model can read; the newest exchange of all is never among them.
    """
    kept = history.fit_history(messages, limits.history_tokens // 2)
    old, chosen, left = history.exchanges(messages[: len(messages) - len(kept)]), list[AnyMessage](), limits.history_tokens
    for exchange in old:
        left -= len(render(exchange)) // CHARS_PER_TOKEN
        if left < 0 and chosen:
            break
        chosen += exchange
    return chosen


def render(messages: Sequence[AnyMessage]) -> str:
    """Messages as JSON lines, long ones cut. No text in them can end the block that they stand in."""
    lines = (json.dumps(line, ensure_ascii=False) for message in messages if (line := _line(message)))
    return "\n".join(lines).replace("<", "\\u003c")


def _line(message: AnyMessage) -> dict[str, Any]:
    match message:
        case HumanMessage():
            return {"customer": shorten(message.text, MAX_SAID_CHARS)}
        case ToolMessage():
            limit = MAX_FOUND_CHARS if message.name == search.TOOL.name else MAX_RESULT_CHARS
            return {"tool": message.name, "result": shorten(message.text, limit)}
        case AIMessage():
            calls = [
                {"tool": call["name"], "arguments": shorten(json.dumps(call["args"], ensure_ascii=False), MAX_RESULT_CHARS)}
                for call in message.tool_calls
            ]
            return {"assistant": shorten(message.text, MAX_SAID_CHARS)} | ({"calls": calls} if calls else {})
        case _:
            return {}


def bounded(text: str, limit_tokens: int) -> str:
    """A summary cut behind its last whole line that fits, or inside the first one."""
    limit = limit_tokens * CHARS_PER_TOKEN
    if len(text) <= limit:
        return text
    return text[:limit].rpartition("\n")[0].rstrip() or shorten(text, limit)


@dataclass(frozen=True, slots=True)
class Fold:
    """The node that folds. It has no effect outside the state, so a crash repeats it safely."""

    parts: AgentParts

    async def fold(self, state: AgentState, config: RunnableConfig, runtime: Runtime[RunContext]) -> dict[str, Any]:
        """Run the node. Without a summary everything stays, up to a multiple of the bound, and a later query tries again."""
        old = foldable(state["messages"], self.parts.limits)
        summary = await self._summary(state, old, config, runtime) if old else None
        folding = folding_of(state)
        if summary is None:
            return {"folding": {**folding, "tries": folding["tries"] + 1}, **self._forget(state)}
        spent: Folding = {
            "tries": folding["tries"] + 1,
            "input_tokens": _sum(folding["input_tokens"], summary.input_tokens),
            "output_tokens": _sum(folding["output_tokens"], summary.output_tokens),
        }
        text = bounded(answer_filter.shown_text(summary.text), self.parts.limits.summary_tokens)
        update = {"summary": text, "folding": spent, "messages": _removed(old)}
        outcome = state.get("outcome")
        return (
            update if outcome is None else {**update, "outcome": with_tokens(outcome, summary.input_tokens, summary.output_tokens)}
        )

    async def _summary(
        self, state: AgentState, old: Sequence[AnyMessage], config: RunnableConfig, runtime: Runtime[RunContext]
    ) -> Summary | None:
        limits = self.parts.limits
        given = {
            "summary": state.get("summary", "").replace("<", "\\u003c"),
            "exchanges": render(old),
            "words": int(limits.summary_tokens * WORDS_PER_TOKEN),
        }
        try:
            with self.parts.call_offs.model_call(runtime.context.thread, state["query_id"]):
                with anyio.move_on_after(limits.summary_timeout_s):
                    return await summary_chain(self.parts.model).ainvoke(given, config)
        except (RetryableError, RejectedError, OutageError) as error:
            # The query has its answer, or gets it without the oldest exchanges; neither must fail for a summary.
            _log.warning("no summary was made: %s", error.reason_code)
        return None

    def _forget(self, state: AgentState) -> dict[str, Any]:
        """Let the oldest exchanges go unread once a thread has become too long to keep: its state has to end somewhere (P7)."""
        messages, limit = state["messages"], self.parts.limits.history_tokens
        if count_tokens_approximately(messages) <= FORGET_AT * limit:
            return {}
        kept = history.fit_history(messages, limit)
        summary = state.get("summary", "")
        told = summary if FORGOTTEN in summary else f"{summary}\n{FORGOTTEN}".strip()
        return {"summary": told, "messages": _removed(messages[: len(messages) - len(kept)])}


def with_tokens(outcome: OutcomeRecord, input_tokens: int | None, output_tokens: int | None) -> OutcomeRecord:
    """An outcome with the tokens of a fold added; unknown stays unknown."""
    return {
        **outcome,
        "input_tokens": _sum(outcome["input_tokens"], input_tokens),
        "output_tokens": _sum(outcome["output_tokens"], output_tokens),
    }


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _removed(messages: Sequence[AnyMessage]) -> list[RemoveMessage]:
    return [RemoveMessage(id=message.id) for message in messages if message.id]
