"""P2 where a process died between an effect and its record, and nobody but a person can find out what happened."""

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from flows.agent import digests
from flows.approvals.policy import ApprovalPolicy, Ask, Deny
from tests.fakes.agents import THREAD, World, adds_up, one, only
from tests.fakes.chat_model import Script, call, say
from tests.fakes.ledger import CrashError, CrashingLedger
from tests.fakes.saver import CrashingSaver
from topics import events
from topics.events import ApprovalExecuted, ApprovalRequested, Payload, Terms

WIRE = {"cents": 5}
BEFORE, AFTER = "after claim, before effect", "after effect, before record"


async def in_doubt(*, at: str = AFTER, turn=None, **more) -> tuple[World, ApprovalRequested, ApprovalRequested, list[Payload]]:
    """A world whose worker died around an effect that nobody can look up: the first request, and the one about the doubt."""
    ordered = turn or call(("c1", "wire_money", WIRE))
    world = World(script=Script(answer=lambda messages: ordered if messages[-1].text == "hello" else say("Done.")), **more)
    world.service.honours_keys = False
    first = one(ApprovalRequested, await world.ask())
    await dies(world, first, at=at)
    told = await world.resume(first)
    return world, first, one(ApprovalRequested, told), told


async def dies(world: World, request: ApprovalRequested, *, at: str, decision: str = "approve") -> None:
    inner, world.ledger = world.ledger, CrashingLedger(world.ledger, at=at)
    with pytest.raises(CrashError):
        await world.resume(request, decision)
    world.ledger = inner


def wired(world: World) -> int:
    return sum(name == "wire" for name, _ in world.effects())


async def tool_text(world: World) -> str:
    return [message.text for message in await world.messages() if message.type == "tool"][-1]


@pytest.mark.parametrize("at", [BEFORE, AFTER])
async def test_a_person_is_asked_what_happened_and_nothing_runs_meanwhile(at: str):
    world, first, doubt, told = await in_doubt(at=at)
    assert (doubt.kind, doubt.supersedes, doubt.arguments) == ("in_doubt", first.approval_id, WIRE)
    assert doubt.approval_id != first.approval_id
    assert set(doubt.allowed_decisions) == {"approve", "respond", "reject"}
    assert doubt.terms.on_new_message == "hold"
    assert doubt.args_digest == digests.args_digest_for(
        THREAD, approval_id=doubt.approval_id, tool="wire_money", arguments=WIRE, policy_version=doubt.policy_version
    )
    assert [(fact.approval_id, fact.status) for fact in only(ApprovalExecuted, told)] == [(first.approval_id, "in_doubt")]
    assert wired(world) == (at == AFTER)
    assert [message.type for message in await world.messages()] == ["human", "ai"]
    # Delivered again, it is the same request.
    assert one(ApprovalRequested, await world.resume(first)) == doubt
    assert wired(world) == (at == AFTER)


async def test_approve_runs_it_again_under_the_same_idempotency_key():
    world, first, doubt, _ = await in_doubt(at=BEFORE)
    told = await world.resume(doubt)
    assert wired(world) == 1
    settled = next(fact for fact in only(ApprovalExecuted, told) if fact.approval_id == doubt.approval_id)
    assert (settled.status, settled.args_digest) == ("ok", doubt.args_digest)
    assert ("acme", digests.effect_key_for(first.approval_id, first.args_digest)) in world.service.results
    assert adds_up(told).text == "Done."


async def test_a_back_office_that_knows_the_key_does_nothing_a_second_time():
    world, _, doubt, _ = await in_doubt()
    world.service.honours_keys = True
    await world.resume(doubt)
    assert wired(world) == 1


async def test_respond_stands_as_the_result_and_in_the_ledger():
    world, first, doubt, _ = await in_doubt()
    told = await world.resume(doubt, "respond", message="The bank shows it: 5 cents went out.")
    assert wired(world) == 1
    assert await tool_text(world) == "The bank shows it: 5 cents went out."
    key = digests.effect_key_for(first.approval_id, first.args_digest)
    assert world.ledger.records[key].result == "The bank shows it: 5 cents went out."
    settled = next(fact for fact in only(ApprovalExecuted, told) if fact.approval_id == doubt.approval_id)
    assert (settled.status, settled.result) == ("ok", "The bank shows it: 5 cents went out.")


async def test_reject_gives_up_and_never_says_that_it_did_not_happen():
    world, _, doubt, _ = await in_doubt()
    told = await world.resume(doubt, "reject")
    assert wired(world) == 1
    settled = next(fact for fact in only(ApprovalExecuted, told) if fact.approval_id == doubt.approval_id)
    assert settled.status == "in_doubt"
    assert "unknown" in await tool_text(world)
    assert adds_up(told).text == "Done."


async def test_a_second_death_is_a_second_doubt():
    world, _, doubt, _ = await in_doubt(at=BEFORE)
    await dies(world, doubt, at=AFTER)
    again = one(ApprovalRequested, await world.resume(doubt))
    assert (again.kind, again.supersedes) == ("in_doubt", doubt.approval_id)
    assert again.approval_id != doubt.approval_id
    assert wired(world) == 1
    await world.resume(again, "respond", message="It went out.")
    assert wired(world) == 1


async def test_a_worker_that_only_slept_may_still_record_what_it_did():
    """Then nothing is run again, whatever the person said in good faith."""
    world, first, doubt, _ = await in_doubt()
    await world.ledger.finish(digests.effect_key_for(first.approval_id, first.args_digest), result="wire done", ok=True)
    told = await world.resume(doubt)
    assert wired(world) == 1
    settled = next(fact for fact in only(ApprovalExecuted, told) if fact.approval_id == doubt.approval_id)
    assert (settled.status, settled.result) == ("ok", "wire done")


async def test_the_calls_beside_it_keep_their_results_and_run_once():
    turn = call(("c1", "wire_money", WIRE), ("c2", "add_note", {"text": "n"}), ("c3", "read_order", {"order": "1"}))
    world, _, doubt, _ = await in_doubt(turn=turn)
    assert [name for name, _ in world.effects()].count("note") <= 2  # the fake back office honours no key here
    before = [name for name, _ in world.effects()].count("note")
    told = await world.resume(doubt, "respond", message="It went out.")
    assert [name for name, _ in world.effects()].count("note") == before
    assert adds_up(told).text == "Done."
    assert [message.type for message in await world.messages()] == ["human", "ai", "tool", "tool", "tool", "ai"]


async def test_no_effect_shares_a_step_with_the_question_about_the_doubt():
    turn = call(("c1", "wire_money", WIRE), ("c2", "wire_money", {"cents": 6}))
    world = World(script=Script(turns=[turn, say("Done.")]))
    first, second = only(ApprovalRequested, await world.ask())
    await world.resume(first)
    inner, world.ledger = world.ledger, CrashingLedger(world.ledger, at=AFTER)
    with pytest.raises((CrashError, BaseExceptionGroup)):
        await world.resume(second)
    world.ledger = inner
    doubts = only(ApprovalRequested, await world.resume(second))
    ran = wired(world)
    for doubt in doubts:
        assert wired(world) == ran
        await world.resume(doubt, "respond", message="It went out.")
    assert wired(world) == ran == 2


async def test_what_is_allowed_without_asking_is_asked_about_when_in_doubt():
    world = World(script=Script(turns=[call(("c1", "wire_money", WIRE)), say("Done.")]))
    world.policy = ApprovalPolicy(judge=lambda *_: Ask(("approve",), Terms(roles=("bank",), quorum=2, on_new_message="cancel")))
    first = one(ApprovalRequested, await world.ask())
    await dies(world, first, at=AFTER)
    doubt = one(ApprovalRequested, await world.resume(first))
    # Who may decide on the call may tell what came of it, and a new message never calls the question off.
    assert (doubt.terms.roles, doubt.terms.quorum, doubt.terms.on_new_message) == (("bank",), 2, "hold")


async def test_a_policy_that_denies_the_call_meanwhile_runs_nothing_again():
    world, _, doubt, _ = await in_doubt()
    world.policy = ApprovalPolicy(version="2", judge=lambda *_: Deny("No more wires."))
    told = await world.resume(doubt)
    assert wired(world) == 1
    assert "unknown" in await tool_text(world)
    assert {fact.status for fact in only(ApprovalExecuted, told)} == {"in_doubt"}


async def test_a_query_called_off_says_that_the_outcome_is_unknown():
    world, _, doubt, _ = await in_doubt()
    told = await world.cancel(query_id="q1")
    assert [fact.approval_id for fact in only(events.ApprovalWithdrawn, told)] == [doubt.approval_id]
    assert "unknown" in await tool_text(world)
    assert wired(world) == 1
    assert adds_up(await world.ask("next", query_id="q2")).query_id == "q2"


@pytest.mark.parametrize("decision", ["approve", "respond", "reject"])
@pytest.mark.parametrize("after", [False, True])
async def test_a_death_at_any_write_while_a_doubt_is_settled_repeats_nothing(decision: str, *, after: bool):
    for at in range(1, 30):
        world, _, doubt, _ = await in_doubt(at=BEFORE, saver=CrashingSaver(serde=JsonPlusSerializer(allowed_msgpack_modules=None)))
        world.service.honours_keys = True
        world.saver.plan(at, after=after)
        try:
            told = await world.resume(doubt, decision, message="It went out.")
        except (CrashError, BaseExceptionGroup):
            world.saver.plan(0, after=False)
            told = await world.resume(doubt, decision, message="It went out.")
        else:
            assert at > 3
            return
        assert wired(world) == (decision == "approve"), at
        assert adds_up(told).text == "Done.", at
        assert [message.type for message in await world.messages()] == ["human", "ai", "tool", "ai"], at
    raise AssertionError("the plan does not reach every write")


# The other classes, with and without a lookup


@pytest.mark.parametrize("at", [BEFORE, AFTER])
@pytest.mark.parametrize(
    ("tool", "arguments", "effect"),
    [
        ("add_note", {"text": "n"}, "note"),
        ("close_account", {"user": "u"}, "close"),
        ("refund", {"order": "o", "cents": 1}, "refund"),
    ],
)
async def test_a_write_runs_again_under_its_key_and_a_lookup_answers_for_what_cannot(
    tool: str, arguments: dict, effect: str, at: str
):
    world = World(
        script=Script(answer=lambda messages: call(("c1", tool, arguments)) if messages[-1].type == "human" else say("Done."))
    )
    inner, world.ledger = world.ledger, CrashingLedger(world.ledger, at=at)
    try:
        requests = only(ApprovalRequested, await world.ask())
        with pytest.raises(CrashError):
            await world.resume(requests[0])
        world.ledger = inner
        told = await world.resume(requests[0])
    except CrashError:
        world.ledger = inner
        told = await world.ask()
    assert only(ApprovalRequested, told) == []
    assert [name for name, _ in world.effects()] == [effect]
    assert adds_up(told).text == "Done."


async def test_what_a_person_wants_run_again_does_not_begin_once_the_query_is_called_off():
    """Its record may come only after this: until then the asker's word is heard wherever something would begin."""
    world, _, doubt, _ = await in_doubt(at=BEFORE)
    world.call_offs.call_off(THREAD, "q1")
    told = await world.resume(doubt)
    assert wired(world) == 0
    settled = next(fact for fact in only(ApprovalExecuted, told) if fact.approval_id == doubt.approval_id)
    assert settled.status == "in_doubt"
    assert one(events.AnswerFailed, told).code == "cancelled"


async def test_what_a_person_found_out_stands_though_the_query_is_called_off():
    world, _, doubt, _ = await in_doubt()
    world.call_offs.call_off(THREAD, "q1")
    told = await world.resume(doubt, "respond", message="The bank has it.")
    assert wired(world) == 1
    settled = next(fact for fact in only(ApprovalExecuted, told) if fact.approval_id == doubt.approval_id)
    assert settled.status == "ok"
    assert one(events.AnswerFailed, told).code == "cancelled"
