"""P3 and P4: what was decided is what happens, in any order, once. Cases 16 (which answer is whose), 26 (call ids), 36 (edits)."""

from itertools import permutations

import pytest
from langgraph.errors import UnknownInterruptError

from flows.agent.digests import args_digest_for
from flows.agent.threads import EditProblem, GraphVersionError, JudgedEdit, StaleApprovalError, ThreadGoneError, ThreadRef
from flows.approvals.policy import Allow, ApprovalPolicy, Ask, Deny, judge
from tests.fakes.agents import THREAD, World, adds_up, one, only
from tests.fakes.chat_model import Script, call, say
from topics import events
from topics.errors import RejectedError

REFUND = {"order": "o-1", "cents": 4990}
RAN = ("refund", {**REFUND, "user": "u-9"})


def _world(*turns, **more) -> World:
    return World(script=Script(turns=list(turns)), **more)


async def _paused(*turns, **more) -> tuple[World, events.ApprovalRequested]:
    world = _world(call(("c1", "refund", REFUND), text=["Because it broke."]), *(turns or [say("Done.")]), **more)
    return world, one(events.ApprovalRequested, await world.ask())


async def _tool_text(world: World) -> str:
    return [message for message in await world.messages() if message.type == "tool"][-1].text


async def test_a_request_shows_the_call_to_the_byte_and_nothing_has_run():
    world, request = await _paused()

    assert world.effects() == []
    assert (request.tool, request.tool_class, request.arguments) == ("refund", "IRREVERSIBLE", REFUND)
    assert (request.reason, request.requester, request.query_id) == ("Because it broke.", "u-9", "q1")
    assert request.args_digest == args_digest_for(
        THREAD, approval_id=request.approval_id, tool="refund", arguments=REFUND, policy_version=request.policy_version
    )
    status = await world.agent().status(THREAD)
    assert (status.exists, status.pending, status.open_step, status.query_id) == (True, (request,), False, "q1")


async def test_asking_again_while_it_waits_publishes_the_same_request():
    world, request = await _paused()
    assert await world.ask() == [request]


async def test_an_approved_call_runs_once_as_the_asker():
    world, request = await _paused()

    told = await world.resume(request)

    assert world.effects() == [RAN]
    executed = one(events.ApprovalExecuted, told)
    assert (executed.status, executed.arguments, executed.args_digest) == ("ok", REFUND, request.args_digest)
    assert adds_up(told).text == "Done."


async def test_an_edited_call_runs_edited_and_the_model_is_told():
    world, request = await _paused()

    told = await world.resume(request, "edit", arguments={"order": "o-1", "cents": 1000})

    assert world.effects() == [("refund", {"order": "o-1", "cents": 1000, "user": "u-9"})]
    assert one(events.ApprovalExecuted, told).arguments["cents"] == 1000
    assert "edited" in await _tool_text(world)
    assert "1000" in await _tool_text(world)


async def test_the_original_call_repeated_after_an_edit_asks_again_and_shows_the_decision():
    world, request = await _paused(call(("c2", "refund", REFUND)), say("Done."))

    told = await world.resume(request, "edit", arguments={"order": "o-1", "cents": 1000})

    again = one(events.ApprovalRequested, told)
    assert again.approval_id != request.approval_id
    assert [(past.decision, past.arguments["cents"]) for past in again.history] == [("edit", 1000)]
    assert len(world.effects()) == 1


@pytest.mark.parametrize(
    "arguments", [None, {"order": "o-1"}, {**REFUND, "more": 1}, {"order": "o-1", "cents": "1e400"}, {"order": 1, "cents": 1}]
)
async def test_an_edit_that_breaks_the_schema_runs_nothing(arguments: dict | None):
    world, request = await _paused()

    problem = world.agent().judge_edit(request, tool=None, arguments=arguments, tenant="acme")
    told = await world.resume(request, "edit", arguments=arguments)

    assert isinstance(problem, EditProblem)
    assert problem.code == "invalid_arguments"
    assert world.effects() == []
    assert one(events.ApprovalExecuted, told).status == "not_run"


async def test_an_edit_cannot_change_the_tool():
    world, request = await _paused()
    problem = world.agent().judge_edit(request, tool="wire_money", arguments={"cents": 1}, tenant="acme")
    assert isinstance(problem, EditProblem)
    assert problem.code == "edit_changes_tool"
    assert isinstance(world.agent().judge_edit(request, tool="refund", arguments=REFUND, tenant="acme"), JudgedEdit)


def _strict(tool, arguments, tenant, requester):
    if tool.name != "refund":
        return judge(tool, arguments, tenant, requester)
    cents = arguments["cents"]
    if cents > 100_000:
        return Deny("too much money")
    return Ask(tool.allowed_decisions, events.Terms(people=("lead",) if cents > 10_000 else ("anybody",)))


async def test_an_edit_is_judged_again_before_it_counts():
    world, request = await _paused(policy=ApprovalPolicy(judge=_strict))
    assert request.terms.people == ("anybody",)
    denied = world.agent().judge_edit(request, tool=None, arguments={"order": "o-1", "cents": 200_000}, tenant="acme")
    assert isinstance(denied, EditProblem)
    assert denied.code == "denied"
    costlier = world.agent().judge_edit(request, tool=None, arguments={"order": "o-1", "cents": 20_000}, tenant="acme")
    assert isinstance(costlier, JudgedEdit)
    assert isinstance(costlier.judgement, Ask)
    assert costlier.judgement.terms.people == ("lead",)


async def test_an_edit_is_judged_once_more_before_it_runs():
    world, request = await _paused(policy=ApprovalPolicy(judge=_strict))
    told = await world.resume(request, "edit", arguments={"order": "o-1", "cents": 200_000})
    assert world.effects() == []
    assert one(events.ApprovalExecuted, told).status == "not_run"


async def test_a_judged_edit_tells_what_would_run_and_the_digest_that_others_approve():
    world, request = await _paused(policy=ApprovalPolicy(judge=_strict))
    edited = {"cents": 20_000, "order": "o-1"}
    judged = world.agent().judge_edit(request, tool="refund", arguments=edited, tenant="acme")
    assert isinstance(judged, JudgedEdit)
    assert isinstance(judged.judgement, Ask)
    assert judged.judgement.terms.people == ("lead",)
    told = await world.resume(request, "edit", arguments=judged.arguments)
    executed = one(events.ApprovalExecuted, told)
    assert (executed.args_digest, executed.arguments) == (judged.args_digest, edited)


async def test_a_denied_call_asks_nobody_and_the_model_is_told():
    world = _world(call(("c1", "refund", {"order": "o-1", "cents": 500_000})), say("No."), policy=ApprovalPolicy(judge=_strict))
    told = await world.ask()
    assert only(events.ApprovalRequested, told) == []
    assert "too much money" in await _tool_text(world)
    assert world.effects() == []


async def test_a_rejected_call_does_not_run_even_when_the_rule_is_eased_meanwhile():
    world, request = await _paused()
    await world.agent().status(THREAD)
    world.policy = ApprovalPolicy(judge=lambda *_: Allow())

    told = await world.resume(request, "reject", message="fraud")

    assert world.effects() == []
    assert one(events.ApprovalExecuted, told).status == "not_run"
    assert "fraud" in await _tool_text(world)


async def test_an_approval_under_an_older_policy_runs_nothing_and_is_asked_again():
    world, request = await _paused()
    world.policy = ApprovalPolicy(version="2")

    told = await world.resume(request)

    assert world.effects() == []
    again = one(events.ApprovalRequested, told)
    assert (again.policy_version, again.supersedes, again.arguments) == ("2", request.approval_id, REFUND)
    assert [past.decision for past in again.history] == ["approve"]
    assert one(events.ApprovalExecuted, told).status == "not_run"
    await world.resume(again)
    assert world.effects() == [RAN]


async def test_a_response_stands_as_the_answer_of_the_call():
    world, request = await _paused()

    told = await world.resume(request, "respond", message="Already refunded last week.")

    assert await _tool_text(world) == "Already refunded last week."
    assert world.effects() == []
    assert one(events.ApprovalExecuted, told).status == "not_run"


@pytest.mark.parametrize("order", list(permutations(range(3))))
async def test_several_calls_are_decided_in_any_order_and_nothing_runs_before_all_are(order: tuple[int, ...]):
    turn = call(
        ("c1", "refund", REFUND),
        ("c2", "refund", {"order": "o-2", "cents": 2}),
        ("c3", "close_account", {"user": "u"}),
        ("c4", "add_note", {"text": "n"}),
    )
    world = _world(turn, say("Done."))
    requests = only(events.ApprovalRequested, await world.ask())
    decisions = ["approve", "reject", "approve"]

    for position, index in enumerate(order):
        assert world.effects() == []
        told = await world.resume(requests[index], decisions[index])
        waiting = {request.approval_id for request in only(events.ApprovalRequested, told)}
        assert waiting == {requests[later].approval_id for later in order[position + 1 :]}

    assert sorted(name for name, _ in world.effects()) == ["close", "note", "refund"]
    assert RAN in world.effects()
    assert sorted(fact.status for fact in only(events.ApprovalExecuted, told)) == ["not_run", "ok", "ok"]


async def test_the_same_verdict_again_tells_the_facts_and_runs_nothing():
    world, request = await _paused()
    first = await world.resume(request)

    again = await world.resume(request)

    assert world.effects() == [RAN]
    assert only(events.ApprovalExecuted, again) == only(events.ApprovalExecuted, first)
    assert adds_up(again).text == "Done."


async def test_the_same_verdict_again_while_others_wait_tells_what_waits():
    world = _world(call(("c1", "refund", REFUND), ("c2", "close_account", {"user": "u"})), say("Done."))
    first, second = only(events.ApprovalRequested, await world.ask())
    await world.resume(first)
    assert only(events.ApprovalRequested, await world.resume(first)) == [second]
    assert world.effects() == []


async def test_another_verdict_on_a_decided_call_is_stale():
    world, request = await _paused()
    await world.resume(request)
    with pytest.raises(StaleApprovalError) as refused:
        await world.resume(request, "reject", decision_id="another")
    assert refused.value.reason_code == "stale"
    assert world.effects() == [RAN]


async def test_an_unknown_approval_is_stale_and_starts_nothing():
    world, request = await _paused()
    with pytest.raises(StaleApprovalError):
        await world.resume("0" * 32)
    assert (await world.agent().status(THREAD)).pending == (request,)


async def test_an_approval_for_a_lost_thread_starts_no_ghost_run():
    world, request = await _paused()
    lost = ThreadRef("globex", THREAD.thread_id)
    with pytest.raises(ThreadGoneError) as refused:
        await world.resume(request, thread=lost)
    assert (refused.value.reason_code, isinstance(refused.value, RejectedError)) == ("thread_gone", True)
    assert not (await world.agent().status(lost)).exists
    assert world.effects() == []


async def test_a_thread_paused_by_another_graph_stays_paused_and_decidable(monkeypatch: pytest.MonkeyPatch):
    world, request = await _paused()
    with monkeypatch.context() as patched:
        patched.setattr("flows.agent.graph.GRAPH_REVISION", "2")
        later = world.agent()
    verdict = events.Verdict(decision_id="d", decision="approve", approver="kim")
    with pytest.raises(GraphVersionError) as refused:
        async for _ in later.resume(THREAD, approval_id=request.approval_id, verdict=verdict, fence=9):
            pass
    assert refused.value.reason_code == "graph_version"

    world.fence = 9
    await world.resume(request)
    assert world.effects() == [RAN]


async def test_a_new_query_on_a_waiting_thread_is_held_and_not_stored():
    world, request = await _paused()

    held = one(events.AnswerHeld, await world.ask("any update?", query_id="q2"))

    assert (held.query_id, held.waiting_for) == ("q2", (request.approval_id,))
    await world.resume(request)
    assert world.effects() == [RAN]
    assert "any update?" not in [message.text for message in await world.messages()]


async def test_the_graph_itself_refuses_an_answered_interrupt():
    world, request = await _paused()
    await world.resume(request)
    graph = world.agent()._graph
    from flows.agent.state import RunContext

    with pytest.raises(UnknownInterruptError):
        async for _ in graph.resume({request.interrupt_id: {}}, RunContext(THREAD, 1), await graph.snapshot(THREAD)):
            pass


async def test_two_calls_under_one_id_are_two_requests_and_each_gets_its_own_answer():
    one_id = call(("c1", "refund", {"order": "1", "cents": 1}), ("c1", "refund", {"order": "2", "cents": 2}))
    world = _world(one_id, say("Done."))
    first, second = only(events.ApprovalRequested, await world.ask())
    await world.resume(second, "reject")
    await world.resume(first)
    assert [arguments["order"] for _, arguments in world.effects()] == ["1"]


async def test_one_call_sent_twice_is_one_request_and_one_effect():
    world = _world(call(("c1", "refund", REFUND), ("c1", "refund", REFUND)), say("Done."))
    request = one(events.ApprovalRequested, await world.ask())
    await world.resume(request)
    assert world.effects() == [RAN]


async def test_a_call_id_used_earlier_in_the_thread_is_made_unique():
    world = _world(call(("c1", "read_order", {"order": "1"})), call(("c1", "read_order", {"order": "1"})), say("Done."))
    assert adds_up(await world.ask()).text == "Done."
    ids = [item["id"] for message in await world.messages() if message.type == "ai" for item in message.tool_calls]
    assert len(ids) == len(set(ids)) == 2


async def test_a_decision_that_the_tool_does_not_allow_runs_nothing():
    world = _world(call(("c1", "close_account", {"user": "u"})), say("Done."))
    request = one(events.ApprovalRequested, await world.ask())
    assert request.allowed_decisions == ("approve", "reject")
    told = await world.resume(request, "edit", arguments={"user": "other"})
    assert world.effects() == []
    assert one(events.ApprovalExecuted, told).status == "not_run"


async def test_a_query_called_off_withdraws_its_requests_and_runs_nothing_of_it():
    world = _world(
        call(("c1", "refund", REFUND), ("c2", "close_account", {"user": "u"}), ("c3", "add_note", {"text": "n"})), say("Next.")
    )
    first, second = only(events.ApprovalRequested, await world.ask())
    await world.resume(first)

    told = await world.cancel(query_id="q1")

    assert [fact.approval_id for fact in only(events.ApprovalWithdrawn, told)] == [second.approval_id]
    assert {fact.status for fact in only(events.ApprovalExecuted, told)} == {"not_run"}
    assert one(events.AnswerFailed, told).code == "cancelled"
    assert world.effects() == []
    assert await world.cancel(query_id="q1") == [*told[:-1], told[-1].model_copy(update={"attempt": 4000})]
    with pytest.raises(StaleApprovalError):
        await world.resume(second)
    assert adds_up(await world.ask("next", query_id="q2")).text == "Next."


async def test_only_the_waiting_query_can_be_called_off():
    world, request = await _paused()
    assert await world.cancel(query_id="another") == []
    assert await world.cancel(query_id="q1", thread=ThreadRef("globex", "T-17")) == []
    await world.resume(request)
    assert await world.cancel(query_id="q1") == []
    assert world.effects() == [RAN]
