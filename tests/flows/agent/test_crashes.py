"""P2 and P1 at every point where a process can die: the effect happens once, and the answer comes."""

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from tests.fakes.agents import World, adds_up, one, only
from tests.fakes.chat_model import Script, Turn, call, say
from tests.fakes.ledger import CrashError, CrashingLedger, ForgetfulLedger
from tests.fakes.saver import CrashingSaver
from topics import events
from topics.events import Payload

POINTS = ("before claim", "after claim, before effect", "after effect, before record", "after record, before checkpoint")
REFUND = {"order": "o-1", "cents": 4990}
APPROVED = [("refund", {**REFUND, "user": "u-9"})]


def _answer(messages: list) -> Turn:
    """Order a refund and a note, then say what came of them; the same for every process."""
    if messages[-1].type == "human":
        return call(("c1", "refund", REFUND), ("c2", "add_note", {"text": "n"}), text=["One moment. "])
    return say("It is ", "done.")


def _world(**more) -> World:
    return World(script=Script(answer=_answer), **more)


async def _until_done(run) -> list[Payload]:
    """Deliver a record until its handler comes through, as the runtime does."""
    seen: list[Payload] = []
    for _ in range(5):
        try:
            return [*seen, *await run()]
        except (CrashError, ExceptionGroup, BaseExceptionGroup):
            continue
    raise AssertionError("it never came through")


async def _story(world: World) -> list[Payload]:
    asked = await _until_done(world.ask)
    request = one(events.ApprovalRequested, asked)
    return await _until_done(lambda: world.resume(request))


@pytest.mark.parametrize("point", POINTS)
async def test_an_effect_happens_once_wherever_the_process_dies_around_it(point: str):
    world = _world()
    request = one(events.ApprovalRequested, await world.ask())
    inner, world.ledger = world.ledger, CrashingLedger(world.ledger, at=point)
    with pytest.raises(CrashError):
        await world.resume(request)
    world.ledger = inner

    told = await world.resume(request)

    assert sorted(world.effects()) == sorted([*APPROVED, ("note", {"text": "n", "extra": None})])
    assert one(events.ApprovalExecuted, told).status == "ok"
    assert adds_up(told).text == "It is done."


async def test_negative_control_without_a_ledger_the_effect_happens_twice():
    world = _world(ledger=ForgetfulLedger())
    world.service.honours_keys = False
    request = one(events.ApprovalRequested, await world.ask())
    inner, world.ledger = world.ledger, CrashingLedger(world.ledger, at="after effect, before record")
    with pytest.raises(CrashError):
        await world.resume(request)
    world.ledger = inner

    await world.resume(request)

    assert world.effects().count(APPROVED[0]) + world.effects().count(("note", {"text": "n", "extra": None})) > 2


@pytest.mark.parametrize("after", [False, True])
async def test_a_death_at_any_write_of_the_checkpoint_loses_and_repeats_nothing(*, after: bool):
    control = _world(saver=CrashingSaver())
    await _story(control)
    total = control.saver.count
    assert total > 5
    for at in range(1, total + 1):
        world = _world(saver=CrashingSaver(serde=JsonPlusSerializer(allowed_msgpack_modules=None)))
        world.saver.plan(at, after=after)
        died = []

        async def deliver(run, *, world=world, died=died):
            try:
                return await run()
            except BaseException:
                died.append(True)
                world.saver.plan(0, after=False)
                raise

        asked = await _until_done(lambda world=world: deliver(world.ask))
        request = one(events.ApprovalRequested, asked)
        told = await _until_done(lambda world=world, request=request: deliver(lambda: world.resume(request)))

        assert died, at
        assert world.effects().count(APPROVED[0]) == 1, at
        assert world.effects().count(("note", {"text": "n", "extra": None})) == 1, at
        assert one(events.ApprovalExecuted, told).status == "ok", at
        assert adds_up(told).text == "It is done.", at
        assert [message.type for message in await world.messages()] == ["human", "ai", "tool", "tool", "ai"], at


@pytest.mark.parametrize("after", [False, True])
async def test_a_death_at_any_write_of_a_later_query_answers_it_once(*, after: bool):
    for at in range(1, 8):
        world = World(script=Script(answer=lambda messages: say(f"To {messages[-1].text}.")), saver=CrashingSaver())
        await world.ask("one", query_id="q1")
        world.saver.plan(at, after=after)
        try:
            told = await world.ask("two", query_id="q2")
        except (CrashError, BaseExceptionGroup):
            world.saver.plan(0, after=False)
            told = await world.ask("two", query_id="q2")
        assert (adds_up(told).query_id, adds_up(told).text) == ("q2", "To two."), at
        assert [message.text for message in await world.messages()] == ["one", "To one.", "two", "To two."], at


async def test_a_death_while_several_wait_keeps_the_answers_that_were_given():
    calls = call(("c1", "refund", REFUND), ("c2", "close_account", {"user": "u"}))
    total = 12
    for at in range(1, total):
        world = World(
            script=Script(answer=lambda messages: calls if messages[-1].type == "human" else say("Done.")), saver=CrashingSaver()
        )
        first, second = only(events.ApprovalRequested, await world.ask())
        world.saver.plan(at, after=at % 2 == 0)
        try:
            await world.resume(second, "reject", message="no")
        except (CrashError, BaseExceptionGroup):
            world.saver.plan(0, after=False)
            await world.resume(second, "reject", message="no")
        try:
            told = await world.resume(first)
        except (CrashError, BaseExceptionGroup):
            world.saver.plan(0, after=False)
            told = await world.resume(first)
        assert world.effects() == APPROVED, at
        assert {fact.status for fact in only(events.ApprovalExecuted, told)} == {"ok", "not_run"}, at
        assert adds_up(told).text == "Done.", at


async def test_the_model_cut_off_in_its_text_starts_a_new_attempt():
    turns = [say("Half an ", error=CrashError()), say("The whole answer.")]
    world = World(script=Script(turns=turns))
    with pytest.raises(CrashError):
        await world.ask()

    told = await world.ask()

    assert one(events.AnswerRestarted, told).reason == "retry"
    assert adds_up(told).attempt == 2000
    assert [message.type for message in await world.messages()] == ["human", "ai"]


async def test_a_query_that_died_is_finished_before_the_next_one_and_both_are_told():
    world = World(script=Script(turns=[say("x", error=CrashError()), say("First."), say("Second.")]))
    with pytest.raises(CrashError):
        await world.ask(query_id="q1")

    told = await world.ask(query_id="q2")

    assert [(done.query_id, done.text) for done in only(events.AnswerCompleted, told)] == [("q1", "First."), ("q2", "Second.")]


async def test_a_resume_delivered_again_after_the_next_query_still_tells_its_own_facts():
    world = World(script=Script(turns=[call(("c1", "refund", REFUND)), say("Refunded."), say("Hello.")]))
    request = one(events.ApprovalRequested, await world.ask(query_id="q1"))
    await world.resume(request)
    await world.ask(query_id="q2")

    told = await world.resume(request)

    assert one(events.ApprovalExecuted, told).status == "ok"
    assert (adds_up(told).query_id, adds_up(told).text) == ("q1", "Refunded.")
    assert world.effects() == APPROVED
