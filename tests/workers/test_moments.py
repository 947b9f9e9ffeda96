"""Reminders, escalations and ends, on a clock that moves when it is told to, with processes that die."""

import random
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

import pytest

from flows.agent.threads import Agent, GraphVersionError, ThreadGoneError, ThreadStatus
from flows.approvals.timing import EXPIRY, SKEW_S
from tests.fakes.agents import one, only
from tests.fakes.approvals import MemoryApprovalRegistry
from tests.fakes.chat_model import call, say
from tests.fakes.clock import START, FakeClock
from tests.fakes.verifier import TrustingVerifier
from tests.workers.desk import Desk, asked, decided, event
from topics.envelope import Event
from topics.errors import OutageError, TooEarlyError
from topics.events import (
    AnswerCompleted,
    AnswerFailed,
    ApprovalAccepted,
    ApprovalDue,
    ApprovalEscalated,
    ApprovalExecuted,
    ApprovalExpired,
    ApprovalRefused,
    ApprovalReminded,
    ApprovalRequested,
    Escalation,
    Payload,
    Terms,
)
from workers.approvals import handle_decision, handle_due
from workers.conversation import Conversation
from workers.scheduler import Scheduler

TERMS = Terms(
    people=("ana",),
    remind_every_s=100,
    escalations=(Escalation(after_s=250, people=("bo",)), Escalation(after_s=450, people=("cy",))),
    expires_after_s=600,
)


class DeathError(Exception):
    """The process is gone."""


def waits(number: int, terms: Terms = TERMS) -> ApprovalRequested:
    asked_at = START + timedelta(seconds=number % 50)
    return ApprovalRequested(
        approval_id=f"a{number}",
        thread_id=f"T-{number}",
        query_id=f"q{number}",
        interrupt_id="i",
        tool="refund",
        tool_class="WRITE",
        arguments={"order": "A"},
        args_digest=f"digest {number}",
        policy_version="1",
        graph_version="1",
        allowed_decisions=("approve", "reject"),
        requester="rita",
        requested_at=asked_at,
        expires_at=asked_at + timedelta(seconds=terms.expires_after_s or 0),
        terms=terms,
    )


class AnyAgent:
    """A thread for every approval."""

    def build_problem(self, *_: Any, **__: Any) -> None:
        return None

    def policy_version(self, _: str) -> str:
        return "1"

    async def status(self, _: Any) -> ThreadStatus:
        return ThreadStatus(exists=True)


@dataclass
class Threads:
    """What threads are told."""

    told: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    fails: Exception | None = None

    async def resume(self, _: Any, *, approval_id: str, verdict: Any) -> AsyncGenerator[Payload]:
        if self.fails is not None:
            raise self.fails
        self.told[approval_id].add(verdict.decision_id)
        for nothing in ():
            yield nothing


@dataclass
class Acknowledged:
    """What the broker's word is waited for with; it may be left alone."""

    step: Callable[[], None]

    def __await__(self) -> Generator[Any, None, None]:
        self.step()
        return
        yield


@dataclass
class House:
    """Registry, two topics and an inbox outlive processes; `dies` says how often one dies at a step."""

    rng: random.Random
    dies: float
    clock: FakeClock = field(default_factory=FakeClock)
    threads: Threads = field(default_factory=Threads)
    timers: list[Event[Any]] = field(default_factory=list)
    decisions: list[Event[Any]] = field(default_factory=list)
    done: set[str] = field(default_factory=set)
    told: list[Payload] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.registry = MemoryApprovalRegistry(self.clock)

    def _step(self) -> None:
        if self.rng.random() < self.dies:
            raise DeathError

    async def schedule(self) -> None:
        async def publish(tenant: str, due: ApprovalDue) -> Awaitable[None]:
            self._step()
            # As on the wire: the id is of the approval, the step and its number.
            self.timers.append(event(due.identity(), due, tenant=tenant))
            return Acknowledged(self._step)

        try:
            await Scheduler(cast("Any", self.registry), publish, self.clock).tick()
        except DeathError:
            return

    async def deliver(self, topic: list[Event[Any]]) -> None:
        while topic:
            if topic[0].id in self.done:
                topic.pop(0)
                continue
            try:
                async for payload in self._handler(topic[0]):
                    self._step()
                    self.told.append(payload)
                    self._step()
            except DeathError:
                return  # its record comes again
            self.done.add(topic.pop(0).id)

    def _handler(self, one: Event[Any]) -> AsyncGenerator[Payload]:
        conversation = cast("Conversation", self.threads)
        if isinstance(one.payload, ApprovalDue):
            return handle_due(one, registry=cast("Any", self.registry), conversation=conversation, clock=self.clock)
        return handle_decision(
            one,
            agent=cast("Agent", AnyAgent()),
            registry=cast("Any", self.registry),
            conversation=conversation,
            verifier=TrustingVerifier(),
            clock=self.clock,
        )


@pytest.mark.parametrize("seed", range(6))
async def test_each_of_many_approvals_ends_once_whatever_dies(seed: int):
    """P3: two schedulers, decisions at any time, late ones too, and deaths at every step."""
    rng = random.Random(seed)
    house, count = House(rng, dies=0.03), 150
    requests = [waits(number) for number in range(count)]
    await house.registry.open("acme", requests)
    decide_at = {request.approval_id: rng.choice([None, rng.randrange(0, 1_000, 5)]) for request in requests}
    for second in range(0, 1_500, 5):
        for request in requests:
            if decide_at[request.approval_id] == second:
                approver, choice = rng.choice(["ana", "bo", "cy"]), rng.choice(["approve", "reject"])
                house.decisions.append(decided(request, choice, id_=f"d-{request.approval_id}", approver=approver))
        for work in rng.sample([house.schedule, house.schedule, *[lambda: house.deliver(house.timers)] * 2], 4):
            await work()
        await house.deliver(house.decisions)
        house.clock.advance(5)
    _check(house, requests, decide_at)
    late = [one for one in only(ApprovalRefused, house.told) if one.code == "expired"]
    assert late, "no decision came too late: the run shows little"
    assert 0 < len({one.approval_id for one in only(ApprovalExpired, house.told)}) < count


def _check(house: House, requests: list[ApprovalRequested], decide_at: dict[str, int | None]) -> None:
    answers = {one.decision_id: one for one in house.told if isinstance(one, ApprovalAccepted | ApprovalRefused)}
    assert set(answers) == {f"d-{name}" for name, at in decide_at.items() if at is not None}
    ended = {one.approval_id for one in only(ApprovalExpired, house.told)}
    for request in requests:
        state, name = house.registry.approvals["acme", request.approval_id], request.approval_id
        assert state.status in {"decided", "expired"}
        assert state.verdict is not None
        assert house.threads.told[name] == {state.verdict.decision_id}, "a thread was told of two ends"
        assert (name in ended) == (state.status == "expired")
        answer = answers.get(f"d-{name}")
        if state.status == "decided":
            assert isinstance(answer, ApprovalAccepted)
            assert state.verdict.decision_id == answer.decision_id
        elif answer is not None:
            assert isinstance(answer, ApprovalRefused)
            in_time = (decide_at[name] or 0) + 20 < 600
            assert (answer.code, answer.reason) in {("expired", ""), ("expired", "too_late"), ("forbidden", "no_authority")}
            assert not in_time or answer.reason == "no_authority"
        levels = [one.level for one in dict.fromkeys(only(ApprovalEscalated, house.told)) if one.approval_id == name]
        assert levels == sorted(levels)
        assert len(levels) == state.level


async def test_a_decision_by_the_next_in_line_counts_once_it_was_escalated():
    house = House(random.Random(0), dies=0)
    await house.registry.open("acme", [waits(0)])
    house.decisions.append(decided(waits(0), id_="early", approver="bo"))
    await house.deliver(house.decisions)
    assert one(ApprovalRefused, house.told).reason == "no_authority"
    house.clock.advance(250)
    await house.schedule()
    await house.deliver(house.timers)
    assert one(ApprovalEscalated, house.told).people == ("bo",)
    house.decisions.append(decided(waits(0), id_="later", approver="bo"))
    await house.deliver(house.decisions)
    assert one(ApprovalAccepted, house.told).decision_id == "later"


async def test_a_moment_that_is_told_by_many_is_done_once():
    house = House(random.Random(0), dies=0)
    await house.registry.open("acme", [waits(0)])
    house.clock.advance(100)
    await house.schedule()
    [first] = house.timers
    house.clock.advance(30)
    await house.schedule()
    assert house.timers == [first, first], "one id, however often it is told"
    await house.deliver(house.timers)
    assert only(ApprovalReminded, house.told) == [ApprovalReminded(approval_id="a0", thread_id="T-0", reminder=1)]
    await house.schedule()
    assert house.timers == []


async def test_a_worker_whose_clock_is_behind_waits_for_the_moment_and_not_for_ever():
    house = House(random.Random(0), dies=0)
    await house.registry.open("acme", [waits(0)])
    due = event("x", ApprovalDue(approval_id="a0", thread_id="T-0", step="expire"))
    house.timers.append(due)
    house.clock.advance(500)
    with pytest.raises(TooEarlyError) as early:
        await house.deliver(house.timers)
    assert early.value.retry_after_s == 100
    house.clock.advance(100 - SKEW_S)
    await house.deliver(house.timers)
    assert one(ApprovalExpired, house.told).approval_id == "a0"


@pytest.mark.parametrize(
    "due",
    [
        ApprovalDue(approval_id="a0", thread_id="another", step="expire"),
        ApprovalDue(approval_id="nothing", thread_id="T-0", step="expire"),
    ],
)
async def test_a_moment_of_nothing_known_does_nothing(due: ApprovalDue):
    house = House(random.Random(0), dies=0)
    await house.registry.open("acme", [waits(0)])
    house.clock.advance(10_000)
    house.timers.append(event("x", due))
    await house.deliver(house.timers)
    assert house.told == []


async def test_an_end_for_a_thread_that_is_lost_is_told_and_one_for_another_build_waits_for_it():
    house = House(random.Random(0), dies=0)
    await house.registry.open("acme", [waits(0), waits(1)])
    house.clock.advance(700)
    await house.schedule()
    house.threads.fails = ThreadGoneError("gone")
    await house.deliver(house.timers[:1])
    house.threads.fails = GraphVersionError("of another build")
    with pytest.raises(GraphVersionError):
        await house.deliver(house.timers[1:])
    assert {one.approval_id for one in only(ApprovalExpired, house.told)} == {"a0", "a1"}


async def test_an_outage_of_the_broker_leaves_what_is_due_due():
    house = House(random.Random(0), dies=0)
    await house.registry.open("acme", [waits(0)])
    house.clock.advance(600)

    async def down(*_: Any) -> Any:
        raise OutageError("no broker")

    with pytest.raises(OutageError):
        await Scheduler(cast("Any", house.registry), down, house.clock).tick()
    house.clock.advance(30)
    await house.schedule()
    assert [one.payload.step for one in house.timers] == ["expire"]


# The thread


def due_of(request: ApprovalRequested, step: str = "expire") -> Event[Any]:
    due = ApprovalDue.model_validate({"approval_id": request.approval_id, "thread_id": request.thread_id, "step": step})
    return event(due.identity(), due)


async def timed_out(desk: Desk, at_expiry: str) -> ApprovalRequested:
    """A thread that waits, and whose approval's time is over."""
    desk.world.script.turns = [call((None, "refund", {"order": "A", "cents": 100})), say("done")]
    request = one(ApprovalRequested, await desk.handle(asked("q1")))
    known = desk.registry.approvals["acme", request.approval_id]
    terms = Terms.model_validate({"expires_after_s": 60, "at_expiry": at_expiry})
    changed = request.model_copy(update={"terms": terms, "expires_at": START + timedelta(seconds=60)})
    desk.registry.approvals["acme", request.approval_id] = known.model_copy(update={"request": changed})
    desk.clock.advance(60)
    return changed


async def test_at_its_end_a_call_is_rejected_and_the_thread_goes_on():
    desk = Desk()
    request = await timed_out(desk, "reject")
    told = await desk.handle(due_of(request))
    assert one(ApprovalExpired, told).at_expiry == "reject"
    assert one(ApprovalExecuted, told).status == "not_run"
    assert one(AnswerCompleted, told).text == "done"
    assert not desk.world.effects()
    late = one(ApprovalRefused, await desk.handle(decided(request)))
    assert late.code == "expired"
    assert only(ApprovalExpired, await desk.handle(due_of(request))) == only(ApprovalExpired, told)
    state = await desk.registry.find("acme", request.approval_id)
    assert state.verdict.approver == EXPIRY


async def test_at_its_end_a_query_is_called_off():
    desk = Desk()
    request = await timed_out(desk, "cancel")
    told = await desk.handle(due_of(request))
    assert one(ApprovalExpired, told).at_expiry == "cancel"
    assert one(AnswerFailed, told).code == "cancelled"
    assert not desk.world.effects()
    assert one(ApprovalRefused, await desk.handle(decided(request))).code == "expired"


async def test_an_end_after_a_decision_does_nothing():
    desk = Desk()
    request = await timed_out(desk, "reject")
    assert one(ApprovalExecuted, await desk.handle(decided(request))).status == "ok"
    assert await desk.handle(due_of(request)) == []
    assert len(desk.world.effects()) == 1
