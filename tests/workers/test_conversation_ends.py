"""A conversation that is left early must let go of its thread at once: the lease, the graph's run, everything."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

import pytest

from flows.agent.call_offs import CallOffs
from flows.agent.threads import Agent, ThreadRef
from tests.fakes.approvals import MemoryApprovalRegistry
from tests.fakes.call_offs import MemoryCallOffNotes
from tests.fakes.held import MemoryHeldQueries
from tests.fakes.leases import MemoryLeases
from topics.events import AnswerDelta, Payload, QueryAsked
from workers.call_offs import SharedCallOffs
from workers.conversation import Conversation

THREAD = ThreadRef("acme", "t1")
CALL_OFFS = SharedCallOffs(CallOffs(), MemoryCallOffNotes())


class TalkingAgent:
    """Streams for ever, and tells when it was closed."""

    def __init__(self) -> None:
        self.closed = False

    async def ask(self, thread: ThreadRef, **_: Any) -> AsyncGenerator[Payload]:
        try:
            while True:
                yield AnswerDelta(thread_id=thread.thread_id, query_id="q", attempt=1, sequence=0, text="x")
        finally:
            self.closed = True


async def test_a_run_that_is_left_early_is_closed_before_its_lease_is_given_back():
    """P5: otherwise the renewal of the lease ends in another task, some time, and the thread stays locked."""
    agent, leases = TalkingAgent(), MemoryLeases()
    conversation = Conversation(cast("Agent", agent), leases, MemoryApprovalRegistry(), MemoryHeldQueries(), CALL_OFFS)
    query = QueryAsked(thread_id="t1", text="hi")
    async with aclosing(conversation.ask(THREAD, query_id="q", query=query)) as payloads:
        async for _ in payloads:
            break
    assert agent.closed
    async with leases.hold(THREAD.checkpoint_id):
        pass


async def test_an_error_at_the_reader_leaves_no_lease_behind():
    agent, leases = TalkingAgent(), MemoryLeases()
    conversation = Conversation(cast("Agent", agent), leases, MemoryApprovalRegistry(), MemoryHeldQueries(), CALL_OFFS)

    async def read() -> None:
        async with aclosing(conversation.ask(THREAD, query_id="q", query=QueryAsked(thread_id="t1", text="hi"))) as payloads:
            async for _ in payloads:
                raise ValueError("no longer ours")

    for _ in range(3):
        with pytest.raises(ValueError, match="no longer ours"):
            await read()
