"""A small world around an agent: its tools, its back office, and what outlives its processes."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from langchain_core.language_models import BaseChatModel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver

from flows.agent.call_offs import CallOffs
from flows.agent.threads import Agent, AgentLimits, ThreadRef
from flows.agent.tools import Tool, ToolContext, ToolRefusedError, Toolset, tool
from flows.approvals.policy import ApprovalPolicy
from tests.fakes.chat_model import FakeChatModel, Script
from tests.fakes.clock import FakeClock
from tests.fakes.ledger import FakeLedger
from tests.fakes.retriever import FakeRetriever
from tests.fakes.tool_service import FakeToolService
from topics import events
from topics.events import ApprovalRequested, Payload, Verdict

THREAD = ThreadRef("acme", "T-17")
PayloadT = TypeVar("PayloadT", bound=Payload)


async def _look_up(context: ToolContext) -> str | None:
    return await context.service.lookup(context.idempotency_key or "", tenant=context.tenant)


@tool(effect="IRREVERSIBLE", lookup=_look_up)
async def refund(context: ToolContext, *, order: str, cents: int) -> str:
    """Refund an order."""
    arguments = {"order": order, "cents": cents, "user": context.user_id}
    return await context.service.call("refund", arguments, tenant=context.tenant, idempotency_key=context.idempotency_key)


@tool(effect="IRREVERSIBLE")
async def wire_money(context: ToolContext, *, cents: int) -> str:
    """Send money where nobody can look."""
    return await context.service.call("wire", {"cents": cents}, tenant=context.tenant, idempotency_key=context.idempotency_key)


@tool(effect="WRITE", asks=False)
async def add_note(context: ToolContext, *, text: str, extra: dict[str, Any] | None = None) -> str:
    """Write a note."""
    arguments = {"text": text, "extra": extra}
    return await context.service.call("note", arguments, tenant=context.tenant, idempotency_key=context.idempotency_key)


@tool(effect="WRITE", allowed_decisions=("approve", "reject"))
async def close_account(context: ToolContext, *, user: str) -> str:
    """Close an account."""
    return await context.service.call("close", {"user": user}, tenant=context.tenant, idempotency_key=context.idempotency_key)


@tool(effect="READ")
async def read_order(context: ToolContext, *, order: str) -> str:
    """Read an order."""
    return await context.service.call("read", {"order": order}, tenant=context.tenant)


@tool(effect="READ")
async def broken(context: ToolContext) -> str:  # noqa: ARG001 the shape of every tool
    """Fail."""
    raise KeyError("secret jane@example.test")


@tool(effect="WRITE", asks=False)
async def refusing(context: ToolContext) -> str:  # noqa: ARG001 the shape of every tool
    """Refuse."""
    raise ToolRefusedError("The order is already closed.")


TOOLS: tuple[Tool, ...] = (refund, wire_money, add_note, close_account, read_order, broken, refusing)


@dataclass
class World:
    """What every process shares. `agent()` is a new process."""

    script: Script = field(default_factory=Script)
    saver: BaseCheckpointSaver[Any] = field(default_factory=InMemorySaver)
    ledger: Any = field(default_factory=FakeLedger)
    service: FakeToolService = field(default_factory=FakeToolService)
    retriever: FakeRetriever = field(default_factory=FakeRetriever)
    clock: FakeClock = field(default_factory=FakeClock)
    policy: ApprovalPolicy = field(default_factory=ApprovalPolicy)
    limits: AgentLimits = field(default_factory=AgentLimits)
    call_offs: CallOffs = field(default_factory=CallOffs)
    tools: tuple[Tool, ...] = TOOLS
    callbacks: tuple[Any, ...] = ()
    fence: int = 0
    told: list[Payload] = field(default_factory=list)

    def agent(self, *, model: BaseChatModel | None = None) -> Agent:
        return Agent(
            model=model or FakeChatModel(script=self.script),
            checkpointer=self.saver,
            toolset_for=lambda _tenant: Toolset("shop", "Be brief.", self.tools),
            service=self.service,
            retriever=self.retriever,
            ledger=self.ledger,
            clock=self.clock,
            policy=self.policy,
            limits=self.limits,
            call_offs=self.call_offs,
            callbacks=self.callbacks,
        )

    async def ask(self, text: str = "hello", *, query_id: str = "q1", thread: ThreadRef = THREAD) -> list[Payload]:
        self.fence += 1
        return await self._all(self.agent().ask(thread, query_id=query_id, text=text, user_id="u-9", fence=self.fence))

    async def resume(
        self, request: ApprovalRequested | str, decision: str = "approve", *, thread: ThreadRef = THREAD, **more: Any
    ) -> list[Payload]:
        approval_id = request if isinstance(request, str) else request.approval_id
        verdict = Verdict.model_validate({"decision_id": f"d:{approval_id}", "decision": decision, "approver": "kim", **more})
        self.fence += 1
        return await self._all(self.agent().resume(thread, approval_id=approval_id, verdict=verdict, fence=self.fence))

    async def cancel(self, *, query_id: str | None, thread: ThreadRef = THREAD) -> list[Payload]:
        self.fence += 1
        return await self._all(self.agent().cancel(thread, query_id=query_id, reason="not wanted", fence=self.fence))

    async def set_aside(self, rule: Literal["cancel", "revise"], *, thread: ThreadRef = THREAD) -> list[Payload]:
        self.fence += 1
        return await self._all(self.agent().set_aside(thread, rule=rule, fence=self.fence))

    async def ask_again(self, *, thread: ThreadRef = THREAD) -> list[Payload]:
        self.fence += 1
        return await self._all(self.agent().ask_again(thread, fence=self.fence))

    async def _all(self, payloads: AsyncIterator[Payload]) -> list[Payload]:
        """Collect one run, and keep in `told` what was published before it died."""
        run: list[Payload] = []
        async for payload in payloads:
            run.append(payload)
            self.told.append(payload)
        return run

    async def messages(self, thread: ThreadRef = THREAD) -> list[Any]:
        saved = await self.saver.aget({"configurable": {"thread_id": thread.checkpoint_id}})
        return list(saved["channel_values"].get("messages", [])) if saved else []

    def effects(self) -> list[tuple[str, dict[str, Any]]]:
        return [(operation, arguments) for _tenant, operation, arguments in self.service.effects]


def only(kind: type[PayloadT], payloads: list[Payload]) -> list[PayloadT]:
    return [payload for payload in payloads if isinstance(payload, kind)]


def one(kind: type[PayloadT], payloads: list[Payload]) -> PayloadT:
    found = only(kind, payloads)
    assert len(found) == 1, payloads
    return found[0]


def streamed(payloads: list[Payload]) -> tuple[int, str]:
    """The highest attempt, and what its deltas say when they are put in order."""
    deltas = only(events.AnswerDelta, payloads)
    highest = max((delta.attempt for delta in (*deltas, *only(events.AnswerRestarted, payloads))), default=-1)
    pieces = sorted((delta.sequence, delta.text) for delta in deltas if delta.attempt == highest)
    return highest, "".join(text for _, text in pieces)


def adds_up(payloads: list[Payload]) -> events.AnswerCompleted:
    """P9, as a consumer checks it."""
    completed = only(events.AnswerCompleted, payloads)[-1]
    assert streamed(payloads) == (completed.attempt, completed.text)
    return completed
