"""Questions, decisions and call-offs of one thread while processes die at every step. P1, P2, P3, P12.

A step is a durable write, a read, or a publication. Dying before a publication loses it; dying behind it does not. The record that
was being handled comes again, and records of the other topic may come first.
"""

import random
from collections import Counter
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from tests.fakes.agents import THREAD, World, only
from tests.fakes.approvals import MemoryApprovalRegistry
from tests.fakes.chat_model import Script, obedient
from tests.fakes.held import MemoryHeldQueries
from tests.fakes.ledger import CrashError
from tests.workers.desk import Desk, asked, called_off, continued, decided
from topics.envelope import Event
from topics.events import (
    AnswerCompleted,
    AnswerFailed,
    AnswerHeld,
    ApprovalAccepted,
    ApprovalExecuted,
    ApprovalRefused,
    ApprovalRequested,
    ApprovalWithdrawn,
    Payload,
)


@dataclass
class Plan:
    """Die at the `at`-th step, before or behind it; 0 is never. `steps` counts."""

    at: int
    behind: bool
    steps: int = 0

    def before(self) -> None:
        self.steps += 1
        if self.steps == self.at and not self.behind:
            raise CrashError(str(self.steps))

    def after(self) -> None:
        if self.steps == self.at and self.behind:
            raise CrashError(str(self.steps))


@dataclass
class Dying:
    """Whatever it wraps, each call is a step."""

    inner: Any
    plan: Plan

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)

        async def step(*args: Any, **kwargs: Any) -> Any:
            self.plan.before()
            result = await method(*args, **kwargs)
            self.plan.after()
            return result

        return step


@dataclass
class Run:
    """Two topics, an approver who decides whatever is asked, and processes that may die."""

    plan: Plan
    rng: random.Random
    queries: list[Event[Any]]
    choice: str = "approve"
    is_lost: bool = False  # the record whose process died never comes again
    desk: Desk = field(init=False)
    decisions: list[Event[Any]] = field(default_factory=list)
    sent: dict[str, Event[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        world = World(script=Script(answer=obedient))
        self.desk = Desk(world, Dying(MemoryApprovalRegistry(), self.plan), Dying(MemoryHeldQueries(), self.plan))

    async def to_the_end(self) -> None:
        for _ in range(200):
            await self._approver()
            topics = [topic for topic in (self.queries, self.decisions) if topic]
            if not topics:
                return
            topic = self.rng.choice(topics)
            if await self._delivered(topic[0]) or self.is_lost:
                topic.pop(0)
        raise AssertionError("no end")

    async def _delivered(self, one: Event[Any]) -> bool:
        try:
            async with aclosing(self.desk.payloads(one)) as payloads:
                async for payload in payloads:
                    self.plan.before()
                    self.desk.told.append(payload)
                    await self._was_registered(payload)
                    self.plan.after()
        except CrashError:
            return False
        return True

    async def _was_registered(self, payload: Payload) -> None:
        if isinstance(payload, ApprovalRequested):
            assert await self.registry.find("acme", payload.approval_id), "published before it was registered"
        if isinstance(payload, ApprovalWithdrawn):
            known = await self.registry.find("acme", payload.approval_id)
            assert known.status != "pending", "withdrawn on the topic, pending in the registry"

    async def _approver(self) -> None:
        for request in only(ApprovalRequested, self.desk.told):
            if request.approval_id not in self.sent:
                one = decided(request, self.choice, id_=f"d{len(self.sent)}")
                self.sent[request.approval_id] = one
                self.decisions.append(one)

    async def go_on(self) -> None:
        """Ask to go on with what was left, and decide anew what still waits: its decision was lost before it counted."""
        self.queries.append(continued())
        await self.to_the_end()
        for state in [one for one in self.registry.approvals.values() if one.status == "pending"]:
            self.decisions.append(decided(state.request, self.choice, id_=f"again-{state.request.approval_id}"))
        await self.to_the_end()

    @property
    def registry(self) -> MemoryApprovalRegistry:
        return self.desk.registry.inner

    def endings(self) -> list[tuple[str, str]]:
        """Query and ending in the order they were first told; a re-run tells the same again."""
        told = [one for one in self.desk.told if isinstance(one, AnswerCompleted | AnswerFailed)]
        return list(dict.fromkeys((one.query_id, one.text if isinstance(one, AnswerCompleted) else one.code) for one in told))

    def outcomes(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for one in self.desk.told:
            if isinstance(one, ApprovalAccepted | ApprovalRefused):
                found.setdefault(one.decision_id, set()).add(one.code if isinstance(one, ApprovalRefused) else "accepted")
        return found

    async def check(self) -> None:
        assert not await self.desk.held.inner.all(THREAD.checkpoint_id), "a question was left behind"
        assert not [one for one in self.registry.approvals.values() if one.status == "pending"]
        effects = Counter(arguments["order"] for _, arguments in self.desk.world.effects())
        assert all(count == 1 for count in effects.values()), effects
        told = self.outcomes()
        assert set(told) == {one.id for one in self.sent.values()}
        assert all(len(codes) == 1 for codes in told.values()), told


QUESTIONS = (("q1", "refund A"), ("q2", "refund B"), ("q3", "hello"))
STEPS = 70
RUNS = 25


def planned(seed: int) -> tuple[random.Random, Plan]:
    """A death of its own for every seed; the seeds of one test walk through all steps."""
    rng = random.Random(seed)
    return rng, Plan(at=seed * STEPS // RUNS, behind=rng.random() < 0.5)


@pytest.mark.parametrize("seed", range(RUNS))
async def test_every_question_ends_once_in_order_wherever_a_process_dies(seed: int):
    rng, plan = planned(seed)
    choice = rng.choice(["approve", "reject"])
    run = Run(plan, rng, [asked(*question) for question in QUESTIONS], choice)
    await run.to_the_end()
    await run.check()
    # A decision whose worker died tells late what it did; the thread itself took its questions in their order.
    assert sorted(run.endings()) == [(query_id, f"done {text}") for query_id, text in QUESTIONS]
    assert [one.id for one in await run.desk.world.messages() if isinstance(one, HumanMessage)] == ["q1", "q2", "q3"]
    status = "ok" if choice == "approve" else "not_run"
    executed = {(one.arguments["order"], one.status) for one in only(ApprovalExecuted, run.desk.told)}
    assert executed == {("refund A", status), ("refund B", status)}
    assert len(run.desk.world.effects()) == (2 if choice == "approve" else 0)
    assert {one.query_id for one in only(AnswerHeld, run.desk.told)} <= {"q2", "q3"}
    assert plan.steps < STEPS, "the plan does not reach every step"


@pytest.mark.parametrize("seed", range(RUNS))
async def test_a_question_is_answered_or_called_off_wherever_a_process_dies(seed: int):
    rng, plan = planned(seed)
    whose = rng.choice(["q1", "q2", "q3", None])
    run = Run(plan, rng, [*(asked(*question) for question in QUESTIONS), called_off(whose)])
    await run.to_the_end()
    await run.check()
    ended = run.endings()
    assert sorted(query_id for query_id, _ in ended) == ["q1", "q2", "q3"], ended
    called = {query_id for query_id, ending in ended if ending == "cancelled"}
    assert called <= ({whose} if whose else {"q1", "q2", "q3"})
    refunded = {arguments["order"] for _, arguments in run.desk.world.effects()}
    assert refunded == {text for query_id, text in QUESTIONS if "refund" in text and query_id not in called}
    assert plan.steps < STEPS, "the plan does not reach every step"


@pytest.mark.parametrize("seed", range(RUNS))
async def test_what_a_lost_record_left_open_is_gone_on_with_wherever_its_process_died(seed: int):
    rng, plan = planned(seed)
    run = Run(plan, rng, [asked(*question) for question in QUESTIONS], is_lost=True)
    await run.to_the_end()
    await run.go_on()
    effects = Counter(arguments["order"] for _, arguments in run.desk.world.effects())
    begun = [one.id for one in await run.desk.world.messages() if isinstance(one, HumanMessage)]
    assert len(begun) >= len(QUESTIONS) - 1, "only the question whose record was lost may be unknown"
    assert sorted(run.endings()) == [(query_id, f"done {text}") for query_id, text in QUESTIONS if query_id in begun]
    assert effects == Counter(text for query_id, text in QUESTIONS if "refund" in text and query_id in begun)
    assert not await run.desk.held.inner.all(THREAD.checkpoint_id)
    assert not [one for one in run.registry.approvals.values() if one.status == "pending"]
    await run.go_on()
    assert effects == Counter(arguments["order"] for _, arguments in run.desk.world.effects())
