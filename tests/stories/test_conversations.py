"""P5, P8, P9: a thread answers in order, remembers its own, and lets nobody jump the gate."""

import pytest

from infra.local.data import datasets
from tests.stories.world import World, nobody
from topics.events import AnswerCompleted, AnswerHeld

pytestmark = [pytest.mark.story, pytest.mark.timeout(120)]

CANCEL = next(task for task in datasets.retail_tasks() if [action.name for action in task.actions] == ["cancel_pending_order"])
QUESTIONS = 6


def _completed(world: World) -> list[str]:
    """Query ids in the order in which their answers were first told."""
    return list(dict.fromkeys(event.payload.query_id for event in world.heard if isinstance(event.payload, AnswerCompleted)))


async def test_questions_on_a_waiting_thread_are_held_and_run_after_the_decision(staffed, world_in):
    async with world_in(staffed) as world:
        world.choose = nobody
        tenant = world.tenant()
        order = await world.order(tenant, CANCEL)
        request = await world.request(tenant)
        held = [await world.ask(tenant, text) for text in ("Is it done yet?", "What did I ask you before?")]
        elsewhere = await world.ask(tenant, "Hello", thread="another")
        await world.until(lambda: all(world.witness.streams[one].held for one in held), "both to be held")
        await world.until_ended(elsewhere)
        told = [event.payload for event in world.heard if isinstance(event.payload, AnswerHeld)]
        assert {(one.query_id, one.waiting_for) for one in told} == {(one, (request.approval_id,)) for one in held}
        assert _completed(world) == [elsewhere]
        assert await world.effects(tenant) == []

        await world.decide(request, "approve")
        await world.until_ended()

        assert _completed(world) == [elsewhere, order, *held]
        assert "Is it done yet?" in world.text_of(held[1])
        assert len(await world.effects(tenant)) == 1


async def test_questions_of_one_thread_are_answered_in_order_however_slow_the_first(staffed, world_in):
    async with world_in(staffed) as world:
        slow, quick = world.tenant("slow"), world.tenant("quick")
        await world.model("faults", {"kind": "delay", "delay_s": 1.5, "match": "Snail number 0"})
        snails = [await world.ask(slow, f"Snail number {number}", thread="t") for number in range(QUESTIONS)]
        other = await world.ask(quick, "A hare", thread="t")
        await world.until_ended()
        order = _completed(world)
        assert [one for one in order if one in snails] == snails
        assert order[0] == other, "nobody else waits"


async def test_a_thread_remembers_its_own_questions_and_no_other_tenants(staffed, world_in):
    async with world_in(staffed) as world:
        ours, theirs = world.tenant("ours"), world.tenant("theirs")
        await world.ask(ours, "My dog is called Rex", thread="same-name")
        await world.until_ended()
        mine = await world.ask(ours, "What did I ask you before?", thread="same-name")
        other = await world.ask(theirs, "What did I ask you before?", thread="same-name")
        same_tenant = await world.ask(ours, "What did I ask you before?", thread="new")
        await world.until_ended()
        assert "Rex" in world.text_of(mine)
        assert "Rex" not in world.text_of(other) + world.text_of(same_tenant)
