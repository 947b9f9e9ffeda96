"""A query that runs is called off out of band: it ends at a safe place, once, and its thread goes on."""

from collections.abc import Callable

import anyio
import anyio.lowlevel
import pytest

from flows.agent.call_offs import MAX_REMEMBERED, CallOffs
from flows.agent.threads import ThreadRef
from tests.fakes.agents import THREAD, World, adds_up, one, only
from tests.fakes.chat_model import Script, call, say
from topics import events


def _world(*turns, **more) -> World:
    return World(script=Script(turns=list(turns)), **more)


async def _call_off_at_first_text(world: World, query_id: str | None) -> list:
    return await _at_first_text(world, lambda _run: world.call_offs.call_off(THREAD, query_id))


async def _at_first_text(world: World, disturb: Callable[[anyio.CancelScope], None]) -> list:
    told = []
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_collect, world, told)
            while not only(events.AnswerDelta, told):
                await anyio.lowlevel.checkpoint()
            disturb(tasks.cancel_scope)
    return told


async def _collect(world: World, told: list) -> None:
    agent = world.agent()
    async for payload in agent.ask(THREAD, query_id="q1", text="hello", user_id=None, fence=1):
        told.append(payload)  # noqa: PERF401 the other task reads it meanwhile


@pytest.mark.parametrize("query_id", ["q1", None])
async def test_a_model_that_writes_is_broken_off_and_the_query_ends_as_cancelled(query_id):
    world = _world(say("I ", "never end", hangs=True), say("Fine."))
    told = await _call_off_at_first_text(world, query_id)
    assert one(events.AnswerFailed, told).code == "cancelled"
    assert only(events.AnswerCompleted, told) == []
    world.fence = 1  # the first ask was not the fake's
    assert adds_up(await world.ask("again?", query_id="q2")).text == "Fine."
    assert [message.text for message in world.script.prompts[-1][1:]] == ["hello", "(No answer was given.)", "again?"]


async def test_calling_off_another_query_leaves_this_one_alone():
    world = _world(say("All ", "of it."))
    world.call_offs.call_off(THREAD, "q0")
    world.call_offs.call_off(ThreadRef("globex", THREAD.thread_id), "q1")
    assert adds_up(await world.ask()).text == "All of it."


async def test_a_query_that_has_not_begun_ends_before_the_model_is_asked():
    world = _world()
    world.call_offs.call_off(THREAD, "q1")
    assert one(events.AnswerFailed, await world.ask()).code == "cancelled"
    assert world.script.prompts == []


async def test_a_tool_that_runs_is_left_to_finish_and_nothing_follows_it():
    """P2: an effect is never half done."""
    world = _world(call(("c1", "add_note", {"text": "n"})), say("Noted."))
    world.service.before_effect = lambda _operation: world.call_offs.call_off(THREAD, "q1")
    told = await world.ask()
    assert one(events.AnswerFailed, told).code == "cancelled"
    assert [operation for operation, _ in world.effects()] == ["note"]
    assert len(world.script.prompts) == 1


@pytest.mark.parametrize("too_late", [False, True])
async def test_a_call_that_the_model_wrote_meanwhile_does_not_run(too_late):
    """A model that has said everything can no longer be broken off."""
    world = _world()
    if too_late:
        world.call_offs.model_call = lambda *_: anyio.CancelScope()
    world.script.answer = lambda _messages: world.call_offs.call_off(THREAD, "q1") or call(("c1", "add_note", {"text": "n"}))
    assert one(events.AnswerFailed, await world.ask()).code == "cancelled"
    assert world.effects() == []


async def test_it_is_told_again_by_the_record_that_called_it_off_and_under_the_same_id():
    world = _world()
    world.call_offs.call_off(THREAD, "q1")
    first, again = one(events.AnswerFailed, await world.ask()), one(events.AnswerFailed, await world.cancel(query_id="q1"))
    assert (first.code, first.identity()) == (again.code, again.identity())


def test_what_was_handled_is_forgotten_and_no_more_than_a_bound_is_remembered():
    offs = CallOffs()
    offs.call_off(THREAD, "q1")
    offs.forget(THREAD, "q1")
    assert not offs.is_off(THREAD, "q1")
    with offs.running(THREAD, "q2"):
        offs.call_off(THREAD, None)
    assert offs.is_off(THREAD, "q2")
    offs.forget(THREAD, None)
    assert not offs.is_off(THREAD, "q2")
    for number in range(MAX_REMEMBERED + 5):
        offs.call_off(THREAD, f"n{number}")
    assert not offs.is_off(THREAD, "n4")
    assert offs.is_off(THREAD, "n5")


async def test_a_run_that_is_cancelled_leaves_no_model_call_behind_and_is_continued_by_the_next():
    """P7, P9: a lost lease or a time limit cancels the run; its model call would go on for as long as the provider lets it."""
    closed = anyio.Event()
    world = _world(say("I ", "never end", hangs=True), say("Fine."))
    world.script.on_close = closed.set
    await _at_first_text(world, lambda run: run.cancel())
    with anyio.fail_after(5):
        await closed.wait()
    world.fence = 1  # the first ask was not the fake's
    assert adds_up(await world.ask()).text == "Fine."
