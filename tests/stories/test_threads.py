"""An operator calls a thread off, or goes on with what nothing goes on with by itself, from a terminal."""

import json
from typing import Any

import pytest

from infra.local.data import datasets
from tests.stories.test_offsets import sluice
from tests.stories.world import World, nobody
from topics.catalogue import DECISIONS
from topics.events import AnswerCompleted
from workers.demo.crew import crew

pytestmark = [pytest.mark.story, pytest.mark.timeout(300)]

ORDER = next(task for task in datasets.retail_tasks() if [action.name for action in task.actions] == ["cancel_pending_order"])


async def threads(world: World, *arguments: str) -> tuple[int, Any]:
    code, out, err = await sluice(world.realm, "threads", *arguments, "--tenant", world.tenant(), "--json", within_s=120)
    assert out, err
    return code, json.loads(out)


def answers(world: World) -> int:
    return sum(isinstance(event.payload, AnswerCompleted) for event in world.heard)


async def test_what_waits_for_people_is_called_off_and_what_has_ended_is_said_to_have(staffed, world_in):
    async with world_in(staffed) as world:
        world.choose = nobody
        waiting = await world.order(world.tenant(), ORDER)
        request = await world.request(world.tenant())
        held = await world.ask(world.tenant(), "Hello, who are you?")
        await world.until(lambda: world.witness.streams[held].held, "the question to be held")

        code, told = await threads(world, "cancel", "thread")
        assert (code, told["endings"]) == (0, {waiting: "cancelled", held: "cancelled"})
        assert list(told["waits_no_more"]) == [request.approval_id]
        assert await world.effects(world.tenant()) == []

        for command in (["cancel", "thread"], ["continue", "thread"], ["continue", "nowhere"]):
            code, told = await threads(world, *command)
            assert (code, told["error"]["code"]) == (1, "nothing_open")
        code, told = await threads(world, "cancel", "thread", "--query", waiting)
        assert (code, told["error"]["code"]) == (1, "late")


async def test_a_thread_whose_record_is_a_dead_letter_goes_on_and_its_effect_is_not_done_again(servers, world_in):
    """P1, P2: the decision ran its tool, and its record failed for good behind that."""
    realm = await servers.realm("stuck", max_failures=1)
    async with world_in(realm) as world, crew(realm.data_dir) as members:
        await members.start("worker-1")
        tenant, mark = world.tenant(), f"<{world.prefix}>"
        await world.model("faults", {"kind": "status", "status": 500, "match": mark, "skip": 1, "times": None})
        query = await world.ask(tenant, f"{ORDER.instruction} {mark}", user=ORDER.user_id)
        (letter,) = await world.letters(1)
        assert letter.topic == realm.catalogue.name(DECISIONS)
        await world.model("reset", {})

        code, told = await threads(world, "continue", "thread")
        assert (code, told["endings"], told["calls"]) == (0, {query: "answered"}, {query: {"ok": 1}})
        await world.until_ended()
        assert len(await world.effects(tenant)) == 1

        told_before = answers(world)
        code, out, err = await sluice(realm, "dead", "replay", letter.id)
        assert code == 0, (out, err)
        await world.until(lambda: answers(world) > told_before, "the replayed decision to be handled")
        code, told = await threads(world, "continue", "thread")
        assert (code, told["error"]["code"]) == (1, "nothing_open")
        assert len(await world.effects(tenant)) == 1
