"""P4 when the policy changes while a thread waits: nothing runs by what was decided under the older one."""

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from flows.approvals.policy import Allow, ApprovalPolicy, Ask, Deny, Judge
from tests.fakes.agents import World, adds_up, one, only
from tests.fakes.chat_model import Script, call, say
from tests.fakes.ledger import CrashError
from tests.fakes.saver import CrashingSaver
from topics.events import ApprovalExecuted, ApprovalRequested, ApprovalWithdrawn, Payload, Terms

REFUND = {"order": "o-1", "cents": 4990}
RAN = ("refund", {**REFUND, "user": "u-9"})
TWO = (("c1", "refund", REFUND), ("c2", "close_account", {"user": "u"}))


def strict(tool, _arguments, _tenant, _requester):
    return Ask(tool.allowed_decisions, Terms(quorum=2)) if tool.asks else Allow()


def newer(judge: Judge = strict, version: str = "2") -> ApprovalPolicy:
    return ApprovalPolicy(version, judge)


async def paused(*calls, **more) -> tuple[World, list[ApprovalRequested]]:
    ordered = call(*(calls or (("c1", "refund", REFUND),)))
    world = World(script=Script(answer=lambda messages: ordered if messages[-1].type == "human" else say("Done.")), **more)
    return world, only(ApprovalRequested, await world.ask())


def withdrawn(told: list[Payload]) -> dict[str, str]:
    return {fact.approval_id: fact.reason for fact in only(ApprovalWithdrawn, told)}


def statuses(told: list[Payload]) -> dict[str, str]:
    return {fact.approval_id: fact.status for fact in only(ApprovalExecuted, told)}


async def test_what_waits_is_withdrawn_and_asked_again_under_the_new_terms():
    world, (old,) = await paused()
    world.policy = newer()
    told = await world.ask_again()
    again = one(ApprovalRequested, told)
    assert withdrawn(told) == {old.approval_id: "policy_changed"}
    assert (again.policy_version, again.terms.quorum, again.supersedes) == ("2", 2, old.approval_id)
    assert again.approval_id != old.approval_id
    assert world.effects() == []
    told = await world.resume(again)
    assert world.effects() == [RAN]
    assert statuses(told) == {again.approval_id: "ok"}


async def test_asking_again_twice_asks_once():
    world, _ = await paused()
    world.policy = newer()
    first = await world.ask_again()
    assert only(ApprovalRequested, await world.ask_again()) == only(ApprovalRequested, first)


async def test_a_policy_that_did_not_change_asks_nothing_again():
    world, requests = await paused()
    assert await world.ask_again() == requests


async def test_what_the_new_policy_allows_runs_and_what_it_denies_does_not():
    def eased(tool, *_):
        return Allow() if tool.name == "refund" else Deny("No closing.")

    world, requests = await paused(*TWO)
    world.policy = newer(eased)
    told = await world.ask_again()
    assert world.effects() == [RAN]
    assert set(withdrawn(told)) == {request.approval_id for request in requests}
    assert adds_up(told).text == "Done."
    assert any("No closing." in message.text for message in await world.messages() if message.type == "tool")


@pytest.mark.parametrize("decision", ["approve", "edit"])
async def test_what_was_approved_beside_what_waits_is_asked_again_or_dropped(decision: str):
    world, (refund, close) = await paused(*TWO)
    await world.resume(refund, decision, arguments={"order": "o-1", "cents": 1} if decision == "edit" else None)
    world.policy = newer()
    told = await world.ask_again()
    again = {request.tool: request for request in only(ApprovalRequested, told)}
    assert withdrawn(told) == {close.approval_id: "policy_changed"}
    assert world.effects() == []
    if decision == "approve":
        assert statuses(told) == {refund.approval_id: "not_run"}
        assert again["refund"].supersedes == refund.approval_id
        await world.resume(again["refund"])
    # An edit is gone with its policy, and what it was made of does not run in its place.
    told = await world.resume(again["close_account"])
    assert {name for name, _ in world.effects()} == ({"close", "refund"} if decision == "approve" else {"close"})
    assert statuses(told)[refund.approval_id] == "not_run"


@pytest.mark.parametrize("decision", ["reject", "respond"])
async def test_a_no_stands_whatever_the_policy_says_later(decision: str):
    world, (refund, _close) = await paused(*TWO)
    await world.resume(refund, decision, message="Fraud.")
    world.policy = newer()
    (again,) = only(ApprovalRequested, await world.ask_again())
    assert again.tool == "close_account"
    await world.resume(again)
    assert [name for name, _ in world.effects()] == ["close"]
    assert "Fraud." in next(message.text for message in await world.messages() if message.type == "tool")


async def test_an_old_approval_does_not_come_back_with_its_policy():
    """It was told as not run: its approver has gone home."""
    world, (refund, _close) = await paused(*TWO)
    await world.resume(refund)
    world.policy = newer()
    second = only(ApprovalRequested, await world.ask_again())
    world.policy = ApprovalPolicy()
    third = only(ApprovalRequested, await world.ask_again())
    assert len(second) == len(third) == 2
    assert len({request.approval_id for request in (refund, *second, *third)}) == 5
    await world.resume(next(request for request in third if request.tool == "close_account"))
    assert world.effects() == []
    await world.resume(next(request for request in third if request.tool == "refund"))
    assert sorted(name for name, _ in world.effects()) == ["close", "refund"]


async def test_a_call_that_was_free_and_asks_now_is_asked_about():
    world, (close,) = await paused(("c1", "add_note", {"text": "n"}), ("c2", "close_account", {"user": "u"}))
    world.policy = newer(lambda tool, *_: Ask(tool.allowed_decisions))
    again = only(ApprovalRequested, await world.ask_again())
    assert sorted(request.tool for request in again) == ["add_note", "close_account"]
    assert world.effects() == []
    assert close.approval_id not in {request.approval_id for request in again}


async def test_an_effect_in_doubt_is_asked_about_again_too():
    from tests.flows.agent.test_in_doubt import in_doubt, wired

    world, _, doubt, _ = await in_doubt()
    world.policy = newer()
    told = await world.ask_again()
    again = one(ApprovalRequested, told)
    assert withdrawn(told) == {doubt.approval_id: "policy_changed"}
    assert (again.kind, again.policy_version) == ("in_doubt", "2")
    await world.resume(again, "respond", message="It went out.")
    assert wired(world) == 1


@pytest.mark.parametrize("after", [False, True])
async def test_a_death_at_any_write_of_asking_again_asks_once_and_runs_once(*, after: bool):
    for at in range(1, 20):
        world, (old,) = await paused(saver=CrashingSaver(serde=JsonPlusSerializer(allowed_msgpack_modules=None)))
        world.policy = newer()
        world.saver.plan(at, after=after)
        try:
            told = await world.ask_again()
        except (CrashError, BaseExceptionGroup):
            world.saver.plan(0, after=False)
            told = await world.ask_again()
        else:
            assert at > 3
            return
        world.saver.plan(0, after=False)
        again = one(ApprovalRequested, told)
        assert withdrawn(told) == {old.approval_id: "policy_changed"}, at
        assert world.effects() == [], at
        await world.resume(again)
        assert world.effects() == [RAN], at
    raise AssertionError("the plan does not reach every write")
