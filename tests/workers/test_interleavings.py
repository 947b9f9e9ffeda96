"""A message, a decision and the end of the time meet on one thread, in any order and with a death anywhere. P1, P2, P3, case 18."""

import asyncio
import random
from collections import Counter
from functools import partial
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from flows import history
from flows.approvals.policy import Allow, ApprovalPolicy, Ask
from tests.fakes.agents import THREAD, World, one, only
from tests.fakes.chat_model import Script, obedient
from tests.workers.desk import Desk, asked, decided, event
from tests.workers.interleaving import NOW, Partition, Stage, Stepped, SteppedLeases, SteppedSaver
from topics.events import (
    AnswerCompleted,
    AnswerFailed,
    ApprovalAccepted,
    ApprovalDue,
    ApprovalExecuted,
    ApprovalExpired,
    ApprovalRefused,
    ApprovalRequested,
    ApprovalWithdrawn,
    AtExpiry,
    OnNewMessage,
    Terms,
)

SEEDS = 16


class Meeting:
    """q1 waits for a yes. Then q2 and q3 come, kim decides, and the time is over, all at once."""

    def __init__(self, seed: int, *, rule: OnNewMessage, at_expiry: AtExpiry, decision: str, crash: bool) -> None:
        self.rng = random.Random(seed)
        self.stage = Stage(self.rng, crash_at=self.rng.randrange(1, 70) if crash else 0)
        self.decision = decision
        terms = Terms(on_new_message=rule, expires_after_s=60, at_expiry=at_expiry)
        saver = SteppedSaver()
        saver.stage = self.stage
        world = World(
            script=Script(answer=obedient),
            saver=saver,
            policy=ApprovalPolicy(judge=lambda tool, *_: Ask(tool.allowed_decisions, terms) if tool.asks else Allow()),
        )
        self.desk = Desk(world)
        self.desk.clock = world.clock
        self.desk.registry = Stepped(self.desk.registry, self.stage)
        self.desk.held = Stepped(self.desk.held, self.stage)
        self.desk.leases = SteppedLeases(self.desk.leases, self.stage)
        agent = world.agent()
        world.agent = lambda: agent
        self.told: list[tuple[str, Any]] = []
        self.actors = {"queries", "decisions", "timers"}
        self.questions = [asked("q2", "refund B"), asked("q3", "hello")]

    async def hold(self) -> None:
        self.first = one(ApprovalRequested, await self.desk.handle(asked("q1", "refund A")))
        self.desk.world.clock.advance(61)
        # Redelivered to one worker, they are one partition; decisions and moments are two others.
        due = event("t1", ApprovalDue(approval_id=self.first.approval_id, thread_id="T-17", step="expire"))
        records = {
            "queries": self.questions,
            "decisions": [decided(self.first, self.decision, message="ok")],
            "timers": [due],
        }
        await self.stage.run({name: partial(self._all, name, records[name]) for name in self.actors})
        NOW.set(None)
        await self._the_rest()

    async def _all(self, name: str, records: list[Any]) -> None:
        partition = Partition(name, self.stage, self.desk, self.told)
        for record in records:
            await partition.deliver(record)

    async def _the_rest(self) -> None:
        """Somebody says yes to whatever else was asked."""
        answered = {self.first.approval_id}
        while fresh := [one for one in only(ApprovalRequested, self.desk.told) if one.approval_id not in answered]:
            for request in fresh:
                answered.add(request.approval_id)
                await self.desk.handle(decided(request, id_=f"d:{request.approval_id}"))

    async def check(self) -> None:
        told, desk = self.desk.told, self.desk
        messages = await desk.world.messages()
        history.check_history(messages)
        assert not await desk.held.inner.all(THREAD.checkpoint_id), "a question was left behind"
        assert not [state for state in desk.registry.inner.approvals.values() if state.status == "pending"]
        asked_for = ["q1", *(question.id for question in self.questions if "queries" in self.actors)]
        assert [one.id for one in messages if isinstance(one, HumanMessage)] == asked_for

        endings = {(one.query_id, type(one), getattr(one, "code", "")) for one in only(AnswerCompleted, told)}
        endings |= {(one.query_id, type(one), one.code) for one in only(AnswerFailed, told)}
        assert sorted(query_id for query_id, _, _ in endings) == asked_for, endings

        answers = {(one.decision_id, "accepted") for one in only(ApprovalAccepted, told)}
        answers |= {(one.decision_id, one.code) for one in only(ApprovalRefused, told)}
        by_decision = Counter(decision_id for decision_id, _ in answers)
        assert by_decision["d1"] == ("decisions" in self.actors), answers
        assert all(count == 1 for count in by_decision.values()), answers

        self._check_the_first(("d1", "accepted") in answers)
        effects = Counter(arguments["order"] for _, arguments in desk.world.effects())
        assert all(count == 1 for count in effects.values()), effects

    def _check_the_first(self, accepted: bool) -> None:
        """What happened to A is what its approval came to, and nothing else."""
        told, approval_id = self.desk.told, self.first.approval_id
        ran = any(arguments["order"] == "refund A" for _, arguments in self.desk.world.effects())
        withdrawn = {one.approval_id for one in only(ApprovalWithdrawn, told)}
        expired = {one.approval_id for one in only(ApprovalExpired, told)}
        executed = {one.status for one in only(ApprovalExecuted, told) if one.approval_id == approval_id}
        assert [accepted, approval_id in withdrawn, approval_id in expired].count(True) == 1
        assert ran == (accepted and self.decision == "approve")
        assert executed == ({"ok"} if ran else {"not_run"} if accepted or (approval_id in expired and executed) else set())


def meeting(seed: int, rule: OnNewMessage, *, crash: bool) -> Meeting:
    rng = random.Random(f"{rule}{seed}")
    at_expiry, decision = rng.choice(["reject", "cancel"]), rng.choice(["approve", "approve", "reject", "respond"])
    return Meeting(seed, rule=rule, at_expiry=at_expiry, decision=decision, crash=crash)


@pytest.mark.parametrize("rule", ["hold", "cancel", "revise"])
@pytest.mark.parametrize("crash", [False, True])
async def test_a_message_a_decision_and_the_end_of_the_time_meet_and_one_of_them_wins(rule: OnNewMessage, *, crash: bool):
    for seed in range(SEEDS):
        story = meeting(seed, rule, crash=crash)
        try:
            await story.hold()
            await story.check()
        except BaseException as error:
            error.add_note(f"seed {seed}, {rule}, crash at {story.stage.crash_at}")
            raise


async def test_every_winner_is_met_and_crashes_do_happen():
    """A schedule that always ends one way would prove nothing."""
    winners, crashed = set(), 0
    for seed in range(SEEDS):
        story = meeting(seed, "cancel", crash=True)
        await asyncio.wait_for(story.hold(), 60)
        told, approval_id = story.desk.told, story.first.approval_id
        kinds = (ApprovalWithdrawn, ApprovalExpired, ApprovalAccepted)
        winners |= {type(one) for one in told if isinstance(one, kinds) and one.approval_id == approval_id}
        crashed += story.stage.crashed
    assert winners == {ApprovalWithdrawn, ApprovalExpired, ApprovalAccepted}
    assert crashed > SEEDS // 2


@pytest.mark.parametrize("crash", [False, True])
async def test_approve_and_reject_at_once_are_one_decision_and_its_effect(*, crash: bool):
    """Case 15: two workers, two decisions, one death between an effect and its checkpoint."""
    for seed in range(SEEDS):
        story = Meeting(seed, rule="hold", at_expiry="reject", decision="approve", crash=crash)
        desk, stage = story.desk, story.stage
        request = one(ApprovalRequested, await desk.handle(asked("q1", "refund A")))
        yes, no = decided(request, id_="yes"), decided(request, "reject", id_="no", approver="ana")
        again = decided(request, id_="yes")
        await stage.run({name: partial(story._all, name, records) for name, records in (("a", [yes]), ("b", [no]), ("c", [again]))})
        NOW.set(None)
        accepted = {answer.decision_id for answer in only(ApprovalAccepted, desk.told)}
        refused = {answer.decision_id: answer.code for answer in only(ApprovalRefused, desk.told)}
        assert (accepted, refused) in [({"yes"}, {"no": "late"}), ({"no"}, {"yes": "late"})], f"seed {seed}"
        assert len(desk.world.effects()) == (accepted == {"yes"}), f"seed {seed}"
        assert {fact.status for fact in only(ApprovalExecuted, desk.told)} == {"ok" if accepted == {"yes"} else "not_run"}
