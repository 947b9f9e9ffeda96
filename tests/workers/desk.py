"""The query and approval workers around one small world, for tests that let processes die at any step."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.agents import World
from tests.fakes.approvals import MemoryApprovalRegistry
from tests.fakes.call_offs import MemoryCallOffNotes
from tests.fakes.clock import FakeClock
from tests.fakes.held import MemoryHeldQueries
from tests.fakes.leases import MemoryLeases
from tests.fakes.verifier import TrustingVerifier
from topics.envelope import Event
from topics.events import ApprovalDecided, ApprovalDue, ApprovalRequested, Payload, QueryAsked, QueryCancelled, QueryContinued
from topics.records import RawRecord
from workers.approvals import handle_decision, handle_due
from workers.call_offs import SharedCallOffs
from workers.conversation import Conversation
from workers.query import handle_query

RECORD = RawRecord("queries", 0, 0, None, b"")


def event(id_: str, payload: Payload, *, tenant: str = "acme") -> Event[Any]:
    return Event(id_, "test", tenant, f"{tenant}/{getattr(payload, 'thread_id', '')}", payload, RECORD)


def asked(query_id: str, text: str = "hello", *, thread: str = "T-17", tenant: str = "acme") -> Event[Any]:
    return event(query_id, QueryAsked(thread_id=thread, text=text, user_id="u-9"), tenant=tenant)


def called_off(query_id: str | None, *, id_: str = "c1", thread: str = "T-17", tenant: str = "acme") -> Event[Any]:
    return event(id_, QueryCancelled(thread_id=thread, query_id=query_id), tenant=tenant)


def continued(*, thread: str = "T-17", tenant: str = "acme") -> Event[Any]:
    return event("go-on", QueryContinued(thread_id=thread), tenant=tenant)


def decided(
    request: ApprovalRequested, decision: str = "approve", *, id_: str = "d1", tenant: str = "acme", **more: Any
) -> Event[Any]:
    fields = {
        "approval_id": request.approval_id,
        "thread_id": request.thread_id,
        "decision": decision,
        "args_digest": request.args_digest,
        "approver": "kim",
    }
    return event(id_, ApprovalDecided.model_validate(fields | more), tenant=tenant)


@dataclass
class Desk:
    """What outlives processes. `handle` is one delivery to a process of its own; `told` is what the broker acknowledged."""

    world: World = field(default_factory=World)
    registry: Any = field(default_factory=MemoryApprovalRegistry)
    held: Any = field(default_factory=MemoryHeldQueries)
    leases: Any = field(default_factory=MemoryLeases)
    notes: Any = field(default_factory=MemoryCallOffNotes)
    verifier: Any = field(default_factory=TrustingVerifier)
    clock: FakeClock = field(default_factory=FakeClock)
    told: list[Payload] = field(default_factory=list)

    def payloads(self, one: Event[Any]) -> AsyncGenerator[Payload]:
        agent = self.world.agent()
        call_offs = SharedCallOffs(self.world.call_offs, self.notes)
        conversation = Conversation(agent, self.leases, self.registry, self.held, call_offs)
        if isinstance(one.payload, ApprovalDecided):
            return handle_decision(
                one,
                agent=agent,
                registry=self.registry,
                conversation=conversation,
                verifier=self.verifier,
                clock=self.clock,
            )
        if isinstance(one.payload, ApprovalDue):
            return handle_due(one, registry=self.registry, conversation=conversation, clock=self.clock)
        return handle_query(one, conversation=conversation)

    async def handle(self, one: Event[Any]) -> list[Payload]:
        """Deliver an event and let the broker take everything."""
        taken: list[Payload] = []
        async with aclosing(self.payloads(one)) as payloads:
            async for payload in payloads:
                taken.append(payload)
                self.told.append(payload)
        return taken

    async def held_ids(self, thread: Any) -> list[str]:
        return [one.query_id for one in await self.held.all(thread.checkpoint_id)]
