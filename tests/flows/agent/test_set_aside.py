"""A customer who writes again while a call waits (case 18): by the call's rule, and never an unanswered call in the history."""

import pytest

from flows import history
from flows.agent.threads import StaleApprovalError
from flows.approvals.policy import Allow, ApprovalPolicy, Ask
from tests.fakes.agents import THREAD, World, adds_up, one, only
from tests.fakes.chat_model import Script, call, say
from topics.events import AnswerFailed, ApprovalExecuted, ApprovalRequested, ApprovalWithdrawn, OnNewMessage, Terms

REFUND = {"order": "o-1", "cents": 4990}
RULES: dict[str, OnNewMessage] = {"refund": "revise", "close_account": "cancel", "wire_money": "hold"}


def by_tool(tool, *_):
    return Ask(tool.allowed_decisions, Terms(on_new_message=RULES[tool.name])) if tool.asks else Allow()


async def paused(*calls) -> tuple[World, list[ApprovalRequested]]:
    world = World(script=Script(turns=[call(*(calls or (("c1", "refund", REFUND),)))]), policy=ApprovalPolicy(judge=by_tool))
    return world, only(ApprovalRequested, await world.ask())


@pytest.mark.parametrize(
    ("rule", "code", "reason"), [("cancel", "cancelled", "new_message"), ("revise", "superseded", "superseded")]
)
async def test_a_query_that_is_set_aside_ends_with_its_own_code_and_its_requests_are_withdrawn(rule, code: str, reason: str):
    world, (request,) = await paused()
    told = await world.set_aside(rule)
    assert [(fact.approval_id, fact.reason) for fact in only(ApprovalWithdrawn, told)] == [(request.approval_id, reason)]
    assert (one(AnswerFailed, told).query_id, one(AnswerFailed, told).code) == ("q1", code)
    assert world.effects() == []
    history.check_history(await world.messages())
    assert "wrote again" in next(message.text for message in await world.messages() if message.type == "tool")
    with pytest.raises(StaleApprovalError):
        await world.resume(request)


async def test_after_revise_the_model_reads_both_messages_and_its_next_request_names_the_one_before():
    world, (old,) = await paused()
    await world.set_aside("revise")
    world.script.turns = [call(("c2", "refund", {"order": "o-1", "cents": 100})), say("Done.")]
    again = one(ApprovalRequested, await world.ask("only one euro, please", query_id="q2"))
    assert (again.supersedes, again.query_id) == (old.approval_id, "q2")
    said = [message.text for message in world.script.prompts[-1]]
    assert said[1] == "hello"
    assert "wrote again" in said[3]
    assert said[-1] == "only one euro, please"
    told = await world.resume(again)
    assert [arguments["cents"] for _, arguments in world.effects()] == [100]
    assert [fact.approval_id for fact in only(ApprovalExecuted, told)] == [again.approval_id]


async def test_of_two_that_were_set_aside_each_new_request_names_the_one_it_repeats():
    one_call, other = {"order": "o-1", "cents": 1}, {"order": "o-2", "cents": 2}
    world, requests = await paused(("c1", "refund", one_call), ("c2", "refund", other))
    await world.set_aside("revise")
    world.script.turns = [call(("c3", "refund", other), ("c4", "refund", one_call))]
    again = only(ApprovalRequested, await world.ask("both", query_id="q2"))
    before = {request.arguments["order"]: request.approval_id for request in requests}
    assert {request.arguments["order"]: request.supersedes for request in again} == before


async def test_a_decision_ends_what_a_request_may_supersede():
    world, _ = await paused()
    await world.set_aside("revise")
    world.script.turns = [call(("c2", "refund", REFUND)), say("Done."), call(("c3", "refund", REFUND))]
    second = one(ApprovalRequested, await world.ask("again", query_id="q2"))
    await world.resume(second)
    third = one(ApprovalRequested, await world.ask("and again", query_id="q3"))
    assert third.supersedes is None
    assert [past.decision for past in third.history] == ["approve"]


async def test_the_message_that_set_a_query_aside_and_died_tells_of_it_when_it_comes_again():
    world, (request,) = await paused()
    told = await world.set_aside("revise")
    world.script.turns = [say("Hi.")]
    again = await world.ask("hi", query_id="q2")
    assert only(ApprovalWithdrawn, again) == only(ApprovalWithdrawn, told)
    assert [failed.code for failed in only(AnswerFailed, again)] == ["superseded"]
    assert adds_up(again).query_id == "q2"
    assert request.query_id == "q1"


@pytest.mark.parametrize(
    ("calls", "rule"),
    [
        (("refund",), "revise"),
        (("close_account",), "cancel"),
        (("refund", "close_account"), "revise"),
        (("wire_money", "close_account"), "hold"),
        (("wire_money", "refund", "close_account"), "hold"),
    ],
)
async def test_of_several_calls_the_rule_that_gives_up_least_holds(calls: tuple[str, ...], rule: str):
    arguments = {"refund": REFUND, "close_account": {"user": "u"}, "wire_money": {"cents": 1}}
    world, _ = await paused(*((f"c{number}", name, arguments[name]) for number, name in enumerate(calls)))
    assert (await world.agent().status(THREAD)).on_new_message == rule


async def test_a_call_that_was_approved_and_has_not_run_still_has_its_say():
    """Or a message could throw away an approval that a person gave under the promise that it is held."""
    world, (wire, close) = await paused(("c1", "wire_money", {"cents": 1}), ("c2", "close_account", {"user": "u"}))
    assert (wire.tool, close.tool) == ("wire_money", "close_account")
    await world.resume(wire)
    assert (await world.agent().status(THREAD)).on_new_message == "hold"


async def test_a_thread_that_does_not_wait_is_not_set_aside():
    world = World(script=Script(turns=[say("Hi.")]))
    await world.ask()
    assert await world.set_aside("cancel") == []
    assert (await world.agent().status(THREAD)).on_new_message == "hold"
