"""P3 and P4 where one turn orders very much: every decision counts, every request is told of, and the turn comes to an end."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.agent import state
from flows.agent.parts import AgentLimits
from flows.agent.state import KEPT_DECISIONS, DecisionRecord, merge_decisions
from flows.approvals.policy import ApprovalPolicy
from tests.fakes.agents import World, adds_up, one, only
from tests.fakes.chat_model import Script, call, say
from topics.events import AnswerFailed, ApprovalExecuted, ApprovalRequested, ApprovalWithdrawn

MANY = KEPT_DECISIONS + 1


def _world(count: int, **more) -> World:
    """A model that orders so many refunds at once, and then has done."""
    refunds = [(f"c{number}", "refund", {"order": f"o-{number}", "cents": 1}) for number in range(count)]
    return World(script=Script(answer=lambda messages: call(*refunds) if messages[-1].type == "human" else say("Done.")), **more)


async def test_every_decision_on_a_turn_counts_however_many_there_are(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(state, "KEPT_DECISIONS", 3)
    world, told = _world(5), []
    for request in only(ApprovalRequested, await world.ask()):
        told = await world.resume(request)
    assert only(ApprovalRequested, told) == []
    assert len(world.effects()) == len(only(ApprovalExecuted, told)) == 5
    assert adds_up(told).text == "Done."


async def test_every_request_that_is_called_off_is_told_as_withdrawn_and_told_again():
    world = _world(MANY, limits=AgentLimits(max_calls_per_turn=MANY))
    asked = {request.approval_id for request in only(ApprovalRequested, await world.ask())}
    assert len(asked) == MANY
    for _ in range(2):
        told = await world.cancel(query_id="q1")
        assert {fact.approval_id for fact in only(ApprovalWithdrawn, told)} == asked
        assert one(AnswerFailed, told).code == "cancelled"
    assert world.effects() == []


async def test_every_request_that_a_new_policy_asks_again_is_told_as_withdrawn(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(state, "KEPT_DECISIONS", 3)
    world = _world(2)
    told, asked = await world.ask(), set[str]()
    for version in "234":
        asked |= {request.approval_id for request in only(ApprovalRequested, told)}
        world.policy = ApprovalPolicy(version)
        told = await world.ask_again()
        assert {fact.approval_id for fact in only(ApprovalWithdrawn, told)} == asked
    assert len(asked) == 6


def _record(query_id: str) -> DecisionRecord:
    return DecisionRecord(
        query_id=query_id,
        tool="refund",
        arguments={},
        args_digest="",
        decision_id="d",
        decision="approve",
        approver="kim",
        edited_arguments=None,
        message=None,
        on_new_message="hold",
    )


@given(st.lists(st.integers(0, 2 * KEPT_DECISIONS), max_size=4))
def test_only_the_oldest_decisions_of_earlier_queries_go(counts: list[int]):
    kept: dict[str, DecisionRecord] = {}
    in_order: list[str] = []
    for query, count in enumerate(counts):
        for number in range(count):
            approval_id = f"{query}-{number}"
            kept = merge_decisions(kept, {approval_id: _record(f"q{query}")})
            in_order.append(approval_id)
            assert list(kept) == in_order[-max(KEPT_DECISIONS, number + 1) :]


@pytest.mark.parametrize("limit", [AgentLimits().max_calls_per_turn, 2])
async def test_calls_beyond_a_bound_are_not_run_and_each_is_answered_once(limit: int):
    reads = [(f"c{number}", "read_order", {"order": str(number)}) for number in range(limit + 5)]
    others = [("n1", "no_such_tool", {}), ("r1", "refund", {"order": "o", "cents": 1}), ("b1", "refund", "{not json")]
    turns = [call(*reads, *others), say("Done.")]
    world = World(script=Script(turns=turns), limits=AgentLimits(max_calls_per_turn=limit))
    assert adds_up(await world.ask()).text == "Done."
    answers = [message for message in await world.messages() if message.type == "tool"]
    assert Counter(answer.tool_call_id for answer in answers) == Counter(id_ for id_, _, _ in [*reads, *others])
    texts = {answer.tool_call_id: answer.text for answer in answers}
    assert [id_ for id_, text in texts.items() if text == "read done"] == [id_ for id_, _, _ in reads[:limit]]
    beyond = [*(id_ for id_, _, _ in reads[limit:]), "n1", "r1"]
    assert {texts[id_] for id_ in beyond} == {
        f"Not run: a turn can have {limit} calls at most. Order this one again later if it is still wanted."
    }
    assert len(world.effects()) == limit


async def test_a_turn_beyond_the_bound_asks_about_those_within_it_and_ends():
    world, told = _world(5, limits=AgentLimits(max_calls_per_turn=2)), []
    requests = only(ApprovalRequested, await world.ask())
    assert [request.arguments["order"] for request in requests] == ["o-0", "o-1"]
    for request in requests:
        told = await world.resume(request)
    assert len(world.effects()) == 2
    assert adds_up(told).text == "Done."
    assert [message.type for message in await world.messages()] == ["human", "ai", *["tool"] * 5, "ai"]
