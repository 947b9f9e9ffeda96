# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""The compiled graph, and the only place that touches LangGraph's loosely typed surface.

    model -> gate (one task per call that asks) -> dispatch -> execute (one task per allowed call) -> model
    model -> fold (exchanges that no longer fit, into the summary) -> model, or the end

No effect shares a super-step with an interrupt, so that partial approvals, re-runs and crashes neither repeat nor lose one.
"""

import hashlib
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, Final, cast

from langchain_core.messages import AIMessageChunk
from langchain_core.runnables import RunnableConfig
from langgraph._internal import _constants as langgraph_constants
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, StateSnapshot

from flows.agent import gate as gates
from flows.agent import schema
from flows.agent.execute import Execute
from flows.agent.folding import Fold
from flows.agent.gate import Gate
from flows.agent.model_turn import ModelTurn
from flows.agent.parts import AgentParts
from flows.agent.state import AgentState, RunContext, ThreadRef
from topics.errors import ConfigError

GRAPH_REVISION: Final = "1"
# Versions of earlier builds whose paused threads this build resumes as they are: what it added has a default where it is read.
# A version gets here together with a stored thread of that build that a test resumes.
RESUMES: Final[tuple[str, ...]] = ("1-406962e8",)
NODES: Final = ("model", gates.GATE, "dispatch", "execute", "search", "repair", "fold")
STEPS_PER_MODEL_CALL: Final = 4
STEPS_TO_FOLD: Final = 4


@dataclass(frozen=True, slots=True)
class Waiting:
    """One interrupt that waits, and the request it shows."""

    interrupt_id: str
    request: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A thread as it is saved. `open_step`: a step was begun and nobody is being waited for in some of it.

    `newest` is what the checkpointer read, for a run that begins here: it need not read it once more. Only a fenced run may take
    it: whoever wrote since has a newer fence, and then this run's first write is refused, before any effect of it.
    """

    exists: bool
    state: AgentState
    waiting: tuple[Waiting, ...]
    open_step: bool
    newest: list[Any] = field(default_factory=list[Any], repr=False, compare=False)

    @property
    def is_idle(self) -> bool:
        """Whether new input may be given: anything else would drop what finished siblings wrote."""
        return not self.waiting and not self.open_step


class AgentGraph:
    """The graph over one checkpointer."""

    def __init__(self, parts: AgentParts, checkpointer: BaseCheckpointSaver[Any]) -> None:
        """Compile it.

        Raises:
            ConfigError: This LangGraph cannot resume strictly.
        """
        shape = schema.describe_graph(NODES, AgentState)
        self.version = f"{GRAPH_REVISION}-{hashlib.sha256(shape.encode()).hexdigest()[:8]}"
        self.resumable = frozenset({self.version, *RESUMES})
        self._strict_key = strict_resume_key()
        self._callbacks = list(parts.callbacks)
        self._recursion_limit = STEPS_PER_MODEL_CALL * (parts.limits.max_model_calls_per_query + 1) + STEPS_TO_FOLD
        gate, execute = Gate(parts, self.version), Execute(parts)
        graph = StateGraph(AgentState, context_schema=RunContext)
        model = ModelTurn(parts)
        fold = Fold(parts)
        actions = (model.turn, gate.gate, gate.dispatch, execute.execute, execute.search, gate.repair, fold.fold)
        for name, action in zip(NODES, actions, strict=True):
            graph.add_node(name, cast("Any", action))
        graph.add_edge(START, "model")
        paths = {gates.GATE: gates.GATE, "dispatch": "dispatch", "repair": "repair", "fold": "fold", "end": END}
        graph.add_conditional_edges("model", gate.after_model, cast("Any", paths))
        graph.add_conditional_edges("fold", gate.after_fold, {"model": "model", "end": END})
        graph.add_edge(gates.GATE, "dispatch")
        for node in ("execute", "search", "repair"):
            graph.add_edge(node, "model")
        self._graph = graph.compile(checkpointer=checkpointer)
        self._checkpointer = checkpointer

    async def snapshot(self, thread: ThreadRef) -> Snapshot:
        """What is saved of a thread."""
        newest: list[Any] = []
        saved = await self._graph.aget_state(self._config(thread, keep_newest=newest))
        waiting = tuple(Waiting(interrupt.id, interrupt.value) for interrupt in saved.interrupts)
        return Snapshot(
            # Empty channels are there before the first input is.
            exists="query_id" in saved.values,
            state=cast("AgentState", saved.values),
            waiting=waiting,
            open_step=_has_open_step(saved),
            newest=newest,
        )

    async def run(
        self, step: dict[str, Any] | Command[Any] | None, context: RunContext, before: Snapshot
    ) -> AsyncGenerator[AIMessageChunk]:
        """Run until nothing is left to do or a person is waited for; give the chunks that the model's node shows.

        Args:
            step: New input, or None to continue an open step.
            context: The thread and the fence of its lease.
            before: The thread as it was found under that lease.
        """
        query_id = cast("dict[str, Any]", step if isinstance(step, dict) else before.state)["query_id"]
        # `next` may be empty in an open step, and async durability may lose the turn that ordered a write: hence sync.
        parts = self._graph.astream(
            cast("Any", step),
            self._config(context.thread, query_id, fence=context.fence, known_newest=before.newest),
            context=context,
            stream_mode=["custom"],
            durability="sync",
            version="v2",
        )
        async with aclosing(cast("Any", parts)) as stream:
            async for part in stream:
                if isinstance(part["data"], AIMessageChunk):
                    yield part["data"]

    def resume(self, answers: dict[str, dict[str, Any]], context: RunContext, before: Snapshot) -> AsyncGenerator[AIMessageChunk]:
        """Answer interrupts, by their ids, and run on."""
        return self.run(Command(resume=answers), context, before)

    async def prune(self, thread: ThreadRef) -> None:
        """Let go of all but the newest checkpoint: each is a whole copy, and nothing goes back to an older one."""
        with suppress(NotImplementedError):  # not every saver can; then its owner has to
            await self._checkpointer.aprune([thread.checkpoint_id])

    def _config(self, thread: ThreadRef, query_id: str | None = None, **known: Any) -> RunnableConfig:
        of_query = {} if query_id is None else {"query": query_id}
        # A checkpointer that knows fences refuses writes under an older one. One that knows nothing of the rest reads again.
        return {
            "configurable": {"thread_id": thread.checkpoint_id, self._strict_key: True, **known},
            "metadata": {"tenant": thread.tenant, "thread": thread.thread_id, **of_query},
            "tags": [thread.tenant],
            "callbacks": self._callbacks,
            "recursion_limit": self._recursion_limit,
        }


def strict_resume_key() -> str:
    """The key that makes LangGraph refuse unknown and answered interrupts.

    It is internal. Without it an approval for a lost thread starts a ghost run, and one answer answers the next question.

    Raises:
        ConfigError: This LangGraph does not have it.
    """
    key = getattr(langgraph_constants, "CONFIG_KEY_STRICT_RESUME", None)
    if not isinstance(key, str):
        raise ConfigError("this langgraph cannot resume strictly: install langgraph >=1.2.24,<1.3")
    return key


def _has_open_step(saved: StateSnapshot) -> bool:
    # Input that was saved and not yet read has done nothing. Its record comes again, and brings the input with it.
    tasks = [task for task in saved.tasks if task.name != START or task.result is not None]
    if not saved.interrupts:
        return bool(tasks)
    # A gate whose answer was taken and whose result was not saved waits for nobody, while its siblings still do.
    return any(not task.interrupts and task.result is None for task in tasks)
