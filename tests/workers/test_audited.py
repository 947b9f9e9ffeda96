"""Outcomes get their links on the way out, and a number that was given is published, whatever dies in between."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from flows.approvals.chain import Written
from tests.fakes.chain import MemoryAuditChain
from tests.flows.approvals.audits import verify
from topics.chain import on_the_wire
from topics.envelope import Event
from topics.errors import RejectedError
from topics.events import AnswerDelta, ApprovalDecided, ApprovalExecuted, ApprovalRefused, Payload
from topics.records import RawRecord
from workers.audited import audited

DELTA = AnswerDelta(thread_id="T-17", query_id="q1", attempt=1, sequence=0, text="hi")
LATE = ApprovalRefused(approval_id="a1", thread_id="T-17", decision_id="d1", code="late")
DONE = ApprovalExecuted(
    approval_id="a1", thread_id="T-17", tool="refund", arguments={"cents": 1}, args_digest="d", status="ok", result="done"
)
DECIDED = ApprovalDecided(approval_id="a1", thread_id="T-17", decision="approve", args_digest="d", approver="kim")
EVENT = Event("d1", "test", "acme", "acme/T-17", DECIDED, RawRecord("approvals.decisions", 0, 0, None, b""))


class Topic:
    """What the broker took of each attempt; it dies before `until` payloads are acknowledged."""

    def __init__(self) -> None:
        self.chain = MemoryAuditChain()
        self.taken: list[Payload] = []

    async def attempt(self, *payloads: Payload, until: int = 99, number: int = 1) -> None:
        async def handler(_: Any) -> AsyncGenerator[Payload]:
            for payload in payloads:
                yield payload

        async with aclosing(audited(handler, chain=self.chain)(replace(EVENT, attempt=number))) as found:
            async for payload in found:
                until -= 1
                if until < 0:
                    return
                self.taken.append(payload)

    async def faults(self) -> Sequence[Any]:
        outcomes = [one for one in self.taken if not isinstance(one, AnswerDelta)]
        written = [Written(f"o/0/{n}", 0, "acme", "x", one.TYPE, on_the_wire(one)) for n, one in enumerate(outcomes)]  # pyright: ignore[reportArgumentType]  (only outcomes are left)
        heads = await self.chain.heads()
        return verify(written, before=heads, after=heads).faults


async def test_outcomes_are_linked_and_everything_else_passes():
    topic = Topic()
    await topic.attempt(DELTA, LATE, DONE)
    assert topic.taken[0] == DELTA
    links = [one.chain.number for one in topic.taken[1:] if isinstance(one, ApprovalRefused | ApprovalExecuted) and one.chain]
    assert links == [1, 2]
    assert await topic.faults() == ()
    assert not topic.chain.open


@pytest.mark.parametrize("until", [0, 1, 2])
async def test_a_redelivery_publishes_the_same_bytes(until: int):
    topic = Topic()
    await topic.attempt(LATE, DONE, until=until)
    await topic.attempt(LATE, DONE, number=2)
    assert {one.model_dump_json() for one in topic.taken if isinstance(one, ApprovalRefused)} == {
        next(one for one in topic.taken if isinstance(one, ApprovalRefused)).model_dump_json()
    }
    assert await topic.faults() == ()
    assert not topic.chain.open


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("until", [0, 1])
async def test_a_number_that_a_dead_attempt_was_given_is_published_though_the_next_one_answers_otherwise(until: int, number: int):
    """The chain would have a hole for ever. A start that an outage, a lost lease or a rebalance ended counts as no attempt."""
    topic = Topic()
    await topic.attempt(LATE, DONE, until=until)
    await topic.attempt(LATE.model_copy(update={"code": "stale"}), number=number)
    assert await topic.faults() == ()
    assert not topic.chain.open


async def test_what_an_outcome_lets_happen_does_not_wait_until_it_is_noted_as_told():
    """P3 does not need it: what died before the note is published again, the same."""
    topic, open_at_the_tool = Topic(), []

    async def handler(_: Any) -> AsyncGenerator[Payload]:
        yield LATE
        open_at_the_tool.extend(topic.chain.open)
        yield DONE

    async with aclosing(audited(handler, chain=topic.chain)(EVENT)) as found:
        topic.taken += [payload async for payload in found]
    assert open_at_the_tool == [("acme", 1)]
    assert not topic.chain.open
    assert await topic.faults() == ()


async def test_what_was_published_is_noted_though_its_handler_fails_behind_it():
    """A dead letter does not come again: its number would stay open for ever."""
    topic = Topic()

    async def handler(_: Any) -> AsyncGenerator[Payload]:
        yield LATE
        raise RejectedError("it cannot be done", code="graph_version")

    async def attempt() -> None:
        async with aclosing(audited(handler, chain=topic.chain)(EVENT)) as found:
            async for payload in found:
                topic.taken.append(payload)

    with pytest.raises(RejectedError):
        await attempt()
    assert [type(one) for one in topic.taken] == [ApprovalRefused]
    assert not topic.chain.open
