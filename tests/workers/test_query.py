"""What a cancellation does before its turn, and in it."""

import anyio
import anyio.lowlevel

from tests.fakes.agents import THREAD, World, one, only
from tests.fakes.chat_model import Script, say
from tests.workers.desk import Desk, asked, called_off
from topics.events import AnswerCompleted, AnswerDelta, AnswerFailed
from workers.query import hear_query


async def test_a_cancellation_ends_the_query_that_runs_ahead_of_it_and_is_then_forgotten():
    desk = Desk(World(script=Script(turns=[say("I ", "never end", hangs=True), say("Fine.")])))
    cancel = called_off(None)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(desk.handle, asked("q1", "hello"))
            while not only(AnswerDelta, desk.told):
                await anyio.lowlevel.checkpoint()
            hear_query(cancel, call_offs=desk.world.call_offs)
    assert one(AnswerFailed, desk.told).code == "cancelled"
    await desk.handle(cancel)
    assert {failed.identity() for failed in only(AnswerFailed, desk.told)} == {"q1"}
    assert not desk.world.call_offs.is_off(THREAD, "q1")
    assert one(AnswerCompleted, await desk.handle(asked("q2", "again?"))).text == "Fine."


async def test_other_records_call_nothing_off():
    desk = Desk()
    hear_query(asked("q1", "hello"), call_offs=desk.world.call_offs)
    assert not desk.world.call_offs.is_off(THREAD, "q1")
