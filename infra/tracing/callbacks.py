"""Spans of LangChain's and LangGraph's runs: the agent, its nodes, models, tools and searches.

The steps of a chain (prompts, parsers, lambdas) have no span: they take microseconds, and hide what matters. Texts are in no span
unless content is asked for.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.messages import BaseMessage, messages_to_dict
from langchain_core.outputs import LLMResult

from infra.tracing import names, scope
from infra.tracing.scope import Scope

MAX_OPEN: Final = 50_000  # runs that were begun and never ended; a run that is given up may never say so
_SHARED: Final = {
    "tenant": names.TENANT,
    "thread": names.gen_ai.GEN_AI_CONVERSATION_ID,
    "ticket": names.TICKET,
    "prompt_version": names.PROMPT_VERSION,
}
_STEPS: Final = ("seq:step", "map:key", "langsmith:hidden", "graph:branch")


class _Run(NamedTuple):
    """A run that has begun, and whether its scope is its own: a step of a chain has that of the run around it."""

    scope: Scope
    owns: bool


class SpanCallbacks(BaseCallbackHandler):
    """A handler for every run of a process: each finds its record's span in its own context, and its parent by its parent's id.

    It runs in the loop, in the task of the run, so that what the run does next finds the run's span as its parent.
    """

    run_inline = True

    def __init__(self) -> None:
        self._open: dict[UUID, _Run] = {}

    @property
    def open_runs(self) -> int:
        """How many runs have begun and not ended."""
        return len(self._open)

    def on_chain_start(
        self,
        serialized: dict[str, Any] | None,
        inputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A graph, a node or a chain begins."""
        del serialized, inputs
        found, name = metadata or {}, str(kwargs.get("name") or "")
        inside = self._inside(parent_run_id, found)
        if inside is None:
            return
        if any(tag.startswith(_STEPS) for tag in tags or ()):
            self._open[run_id] = _Run(inside, owns=False)
        elif found.get("langgraph_node") == name:
            step = found.get("langgraph_step")
            self._begin(run_id, inside, f"node {name}", {names.NODE: name, **({names.STEP: step} if step is not None else {})})
        elif parent_run_id is None and name == "LangGraph":
            attributes = {
                names.gen_ai.GEN_AI_OPERATION_NAME: names.INVOKE_AGENT,
                names.gen_ai.GEN_AI_AGENT_NAME: names.AGENT,
            }
            self._begin(run_id, inside, f"{names.INVOKE_AGENT} {names.AGENT}", attributes)
        elif name.startswith("Runnable"):
            self._open[run_id] = _Run(inside, owns=False)
        else:
            self._begin(run_id, inside, f"chain {name}", {})

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """It ended well."""
        del outputs, kwargs
        self._end(run_id)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """It failed, or waits for a person."""
        del kwargs
        # An interrupt is how a graph waits: nothing failed.
        self._end(run_id, error=None if type(error).__name__ in {"GraphInterrupt", "GraphBubbleUp", "ParentCommand"} else error)

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A model is asked. The requests to providers, of which there may be several, have spans of their own inside."""
        del serialized, kwargs
        inside = self._inside(parent_run_id, metadata or {})
        if inside is not None:
            content = {names.gen_ai.GEN_AI_INPUT_MESSAGES: _content(messages_to_dict(messages[0]))} if inside.with_content else {}
            self._begin(run_id, inside, "model", content)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """It answered."""
        del kwargs
        known = self._scope_of(run_id)
        message = _message_of(response)
        if known is not None and message is not None:
            served_by = message.response_metadata.get("served_by")
            if isinstance(served_by, str):
                known.span.set_attribute(names.SERVED_BY, served_by)
            if known.with_content:
                known.span.set_attribute(names.gen_ai.GEN_AI_OUTPUT_MESSAGES, _content(messages_to_dict([message])))
        self._end(run_id)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """It failed."""
        del kwargs
        self._end(run_id, error=error)

    def on_tool_start(
        self,
        serialized: dict[str, Any] | None,
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        inputs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A tool runs."""
        inside = self._inside(parent_run_id, metadata or {})
        if inside is None:
            return
        name, call_id = str((serialized or {}).get("name", "")), kwargs.get("tool_call_id")
        attributes: dict[str, Any] = {
            names.gen_ai.GEN_AI_OPERATION_NAME: names.EXECUTE_TOOL,
            names.gen_ai.GEN_AI_TOOL_NAME: name,
            names.gen_ai.GEN_AI_TOOL_TYPE: "function",
            **({names.gen_ai.GEN_AI_TOOL_CALL_ID: call_id} if isinstance(call_id, str) else {}),
        }
        if inside.with_content:
            attributes[names.gen_ai.GEN_AI_TOOL_CALL_ARGUMENTS] = _content(inputs) if inputs is not None else input_str
        self._begin(run_id, inside, f"{names.EXECUTE_TOOL} {name}", attributes)

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """It answered."""
        del kwargs
        known = self._scope_of(run_id)
        if known is not None and known.with_content:
            known.span.set_attribute(names.gen_ai.GEN_AI_TOOL_CALL_RESULT, str(output))
        self._end(run_id)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """It failed."""
        del kwargs
        self._end(run_id, error=error)

    def on_retriever_start(
        self,
        serialized: dict[str, Any] | None,
        query: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A search begins."""
        del kwargs
        inside = self._inside(parent_run_id, metadata or {})
        if inside is None:
            return
        source = str((serialized or {}).get("name", ""))
        attributes = {
            names.gen_ai.GEN_AI_OPERATION_NAME: names.RETRIEVAL,
            names.gen_ai.GEN_AI_DATA_SOURCE_ID: source,
            **({names.gen_ai.GEN_AI_RETRIEVAL_QUERY_TEXT: query} if inside.with_content else {}),
        }
        self._begin(run_id, inside, f"{names.RETRIEVAL} {source}", attributes)

    def on_retriever_end(self, documents: Sequence[Document], *, run_id: UUID, **kwargs: Any) -> None:
        """It found something, or nothing."""
        del kwargs
        if (known := self._scope_of(run_id)) is not None:
            known.span.set_attribute(names.PASSAGES, len(documents))
        self._end(run_id)

    def on_retriever_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """It failed."""
        del kwargs
        self._end(run_id, error=error)

    def _inside(self, parent_run_id: UUID | None, metadata: Mapping[str, Any]) -> Scope | None:
        """The scope that a run begins in, with what its metadata says of it: that is what travels with the configuration."""
        inside = self._scope_of(parent_run_id)
        if inside is None and (here := scope.current()) is not None:
            inside = here.unit
        if inside is None:
            return None
        shared = {_SHARED[name]: str(value) for name, value in metadata.items() if name in _SHARED}
        return inside.sharing(shared)

    def _scope_of(self, run_id: UUID | None) -> Scope | None:
        run = self._open.get(run_id) if run_id is not None else None
        return run.scope if run is not None else None

    def _begin(self, run_id: UUID, inside: Scope, name: str, attributes: Mapping[str, Any]) -> None:
        if len(self._open) >= MAX_OPEN:
            oldest = next(iter(self._open))
            self._open.pop(oldest)
        begun = inside.begin(name, attributes)
        self._open[run_id] = _Run(begun, owns=True)
        scope.enter(begun)

    def _end(self, run_id: UUID, *, error: BaseException | None = None) -> None:
        run = self._open.pop(run_id, None)
        if run is None or not run.owns:
            return
        if error is not None:
            scope.fail(run.scope.span, error)
        run.scope.span.end()


def _message_of(response: LLMResult) -> BaseMessage | None:
    first = next((one for several in response.generations for one in several), None)
    message: Any = getattr(first, "message", None)
    return message if isinstance(message, BaseMessage) else None


def _content(value: Any) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)
