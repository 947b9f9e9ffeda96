"""The model's node: one call, and what became of it. Every way a query can end is decided here."""

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple, cast

from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage, RemoveMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime

from flows import answer_filter, history, prompts
from flows.agent import decided, folding, router, search, written
from flows.agent.parts import AgentParts
from flows.agent.state import AgentState, OutcomeRecord, RunContext
from flows.agent.tools import Tool, Toolset
from flows.links import Links, links_of
from topics import sizes
from topics.errors import BudgetExceededError, RejectedError, UnavailableError

CONTEXT_TOO_LONG: Final = "context_too_long"
_REJECTIONS: Final = {CONTEXT_TOO_LONG: "too_long", BudgetExceededError.code: BudgetExceededError.code}
_log = logging.getLogger(__name__)

_FAILURES: Final = {"length": "truncated", "content_filter": "filtered"}


class Shown(NamedTuple):
    """Which addresses may be shown, and where what is shown goes."""

    links: Links
    write: Callable[[AIMessageChunk], None]


class Prompt(NamedTuple):
    """What one call of the model is made of."""

    messages: Sequence[AnyMessage]
    toolset: Toolset
    summary: str

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools to bind: all, or those that fit best where there are many."""
        return router.shown_tools(self.toolset.tools, self.messages, pinned=self.toolset.pinned)

    def fitting(self, budget_tokens: int) -> list[AnyMessage]:
        """The system prompt, and behind it the newest exchanges that fit.

        Raises:
            MalformedHistoryError: No provider would take them.
        """
        fitting = history.fit_history(self.messages, budget_tokens)
        history.check_history(fitting)
        names = {tool.name for tool in self.tools}
        others = [tool.name for tool in self.toolset.tools if tool.name not in names]
        system = SystemMessage(prompts.system_prompt(self.toolset.instructions, summary=self.summary, others=others))
        return [system, *(written.sendable_message(one) if isinstance(one, AIMessage) else one for one in fitting)]


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """Call the model once, or end the query without it."""

    parts: AgentParts

    async def turn(self, state: AgentState, config: RunnableConfig, runtime: Runtime[RunContext]) -> dict[str, Any]:
        """Run the node.

        Raises:
            UnavailableError: The model gave nothing that can be used. Nothing was stored.
        """
        messages = state["messages"]
        if (off := decided.called_off(state)) is not None:
            return self._end(state, code=decided.ending_code(off), text="")
        if decided.open_doubts(state):
            return {}  # people are asked first, on the way out of this node
        if self._is_off(state, runtime):
            return self._end(state, code="cancelled", text="")
        if was_over_budget(messages):
            return self._end(state, code=BudgetExceededError.code, text="")
        if found_nothing(messages):
            return self._end(state, code="unanswerable", text=prompts.UNANSWERABLE)
        if state["model_calls"] >= self.parts.limits.max_model_calls_per_query:
            return self._end(state, code="too_many_steps", text="")
        if folding.is_due(state, self.parts.limits):
            return {}  # what the prompt would leave out is folded first, on the way out of this node
        prompt = Prompt(messages, self.parts.toolset(runtime.context.thread.tenant), state.get("summary", ""))
        try:
            with self.parts.call_offs.model_call(runtime.context.thread, state["query_id"]) as call:
                raw = await self._ask(prompt, config, shown=self._shown(state, runtime))
        except RejectedError as error:
            # Raised again, it would leave an open step, which every later question of the thread would run into.
            _log.warning("a call of the model for %s was rejected: %s, %s", state["tenant"], error.reason_code, error)
            return self._end(state, code=_REJECTIONS.get(error.reason_code, "rejected"), text="")
        if call.cancelled_caught and not self._is_off(state, runtime):
            raise UnavailableError("the run was given up")  # whoever continues it calls the model again
        if call.cancelled_caught or (raw.tool_calls and self._is_off(state, runtime)):
            return self._end(state, code="cancelled", text="")
        return self._settle(state, raw)

    def _is_off(self, state: AgentState, runtime: Runtime[RunContext]) -> bool:
        return self.parts.call_offs.is_off(runtime.context.thread, state["query_id"])

    def _shown(self, state: AgentState, runtime: Runtime[RunContext]) -> Shown:
        return Shown(self._links(state), runtime.stream_writer)

    def _links(self, state: AgentState) -> Links:
        """Addresses that may be shown: those of what this query and the last ones found, and those that are told to us."""
        found = [*state["sources"], *(source for query in state.get("past_queries", []) for source in query["sources"])]
        hosts = self.parts.link_hosts_for(state["tenant"])
        return links_of((one["url"] for one in found), texts=(one["passage"] for one in found), hosts=hosts)

    async def _ask(self, prompt: Prompt, config: RunnableConfig, *, shown: Shown) -> AIMessage:
        budget_tokens = self.parts.limits.history_tokens
        try:
            return await self._call(prompt, config, shown=shown, budget_tokens=budget_tokens)
        except RejectedError as error:
            shorter = prompt.fitting(budget_tokens // 2)
            # The same history would be refused again.
            if error.reason_code != CONTEXT_TOO_LONG or len(shorter) == len(prompt.fitting(budget_tokens)):
                raise
        return await self._call(prompt, config, shown=shown, budget_tokens=budget_tokens // 2)

    async def _call(self, prompt: Prompt, config: RunnableConfig, *, shown: Shown, budget_tokens: int) -> AIMessage:
        model = self.parts.model.bind_tools([_schema(tool) for tool in prompt.tools])
        chunks: list[AIMessageChunk] = []
        async for chunk in answer_filter.shown_chunks(
            cast("AsyncIterator[AIMessageChunk]", model.astream(prompt.fitting(budget_tokens), config)), links=shown.links
        ):
            chunks.append(chunk)
            shown.write(chunk)
        if not chunks:
            raise UnavailableError("the model sent nothing")
        # All at once: added one by one, each addition reads and checks again all that came before.
        return chunks[0] + chunks[1:]

    def _settle(self, state: AgentState, raw: AIMessage) -> dict[str, Any]:
        taken = {
            call_id for message in state["messages"] if isinstance(message, AIMessage) for call_id in history.call_ids(message)
        }
        message_id = f"{state['query_id']}:{state['model_calls']}"
        message = written.storable_message(raw, message_id=message_id, taken_ids=taken)
        finish = raw.response_metadata.get("finish_reason")
        refusal = raw.additional_kwargs.get("refusal")
        if finish in _FAILURES:
            return self._end(state, code=_FAILURES[finish], text="", said=message)
        if isinstance(refusal, str) and refusal:
            return self._end_with(state, code="refused", text=answer_filter.shown_text(refusal, self._links(state)), said=message)
        if history.call_ids(message):
            return {"messages": [message], "model_calls": state["model_calls"] + 1}
        if not message.text.strip() or finish != "stop":
            raise UnavailableError("the model ended without an answer")
        return self._end_with(state, code="answered", text=message.text, said=message)

    def _end_with(self, state: AgentState, *, code: str, text: str, said: AIMessage) -> dict[str, Any]:
        """Close the query with the model's words, if an event can carry them: cut, they would not be what was meant (P9)."""
        if sizes.json_bytes(text) > sizes.MAX_ANSWER_BYTES:
            return self._end(state, code="too_large", text="", said=said)
        return self._end(state, code=code, text=text, said=said)

    def _end(self, state: AgentState, *, code: str, text: str, said: AIMessage | None = None) -> dict[str, Any]:
        """Close the query: a last message that keeps the conversation well-formed, and the outcome."""
        closing = AIMessage(
            content=text or prompts.NO_ANSWER,
            id=f"{state['query_id']}:{state['model_calls']}",
            usage_metadata=said.usage_metadata if said else None,
            response_metadata=said.response_metadata if said else {},
        )
        messages, folded = [*state["messages"], closing], folding.folding_of(state)
        input_tokens, output_tokens = usage_of(messages, called=said is not None)
        outcome = OutcomeRecord(code=code, text=text, input_tokens=input_tokens, output_tokens=output_tokens)
        return {
            "messages": [closing, *self._forgotten(messages)],
            "outcome": folding.with_tokens(outcome, folded["input_tokens"], folded["output_tokens"]),
            "model_calls": state["model_calls"] + 1,
        }

    def _forgotten(self, messages: Sequence[AnyMessage]) -> list[RemoveMessage]:
        """What goes at the end of a query where nothing is summarised; else it goes when it has been folded."""
        if self.parts.limits.summary_tokens:
            return []
        kept = {message.id for message in history.fit_history(messages, self.parts.limits.history_tokens)}
        return [RemoveMessage(id=message.id) for message in messages if message.id and message.id not in kept]


@lru_cache(maxsize=1024)
def _schema(tool: Tool) -> dict[str, Any]:
    """Built once for each tool: pydantic takes milliseconds for it, and every model call needs it."""
    return tool.schema()


def found_nothing(messages: Sequence[AnyMessage]) -> bool:
    """Whether all that this query's tools brought are empty searches: then there is nothing to answer from."""
    results = [message for message in history.exchanges(messages)[-1] if isinstance(message, ToolMessage)]
    return bool(results) and all(
        message.name == search.TOOL.name and message.status == "success" and message.text == search.NO_PASSAGES
        for message in results
    )


def was_over_budget(messages: Sequence[AnyMessage]) -> bool:
    """Whether the tenant's budget denied a search of this query, which then ends as it would have by a call of the model."""
    results = (message for message in history.exchanges(messages)[-1] if isinstance(message, ToolMessage))
    return any(message.name == search.TOOL.name and message.text == search.OVER_BUDGET for message in results)


def usage_of(messages: Sequence[AnyMessage], *, called: bool) -> tuple[int | None, int | None]:
    """Tokens in and out over the newest exchange; None when one of its turns did not say.

    Args:
        messages: A conversation that ends with the closing message.
        called: Whether the closing message was written by the model.
    """
    turns = [message for message in history.exchanges(messages)[-1] if isinstance(message, AIMessage)]
    usages = [turn.usage_metadata for turn in (turns if called else turns[:-1])]
    known = [usage for usage in usages if usage is not None]
    if not known or len(known) != len(usages):
        return None, None
    return sum(usage["input_tokens"] for usage in known), sum(usage["output_tokens"] for usage in known)
