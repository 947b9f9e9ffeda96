"""P1, P2, P5, P6: a worker dies, Redis dies, and whoever is left goes on."""

import pytest

from infra.local.data import datasets
from tests.stories.crews import kill_in_the_middle
from tests.stories.world import World, nobody
from topics.events import AnswerCompleted
from workers.demo.crew import crew

pytestmark = [pytest.mark.story, pytest.mark.timeout(280)]

TASKS = [task for task in datasets.retail_tasks() if task.expected_changes]
QUESTIONS = 4


async def test_a_paused_thread_is_resumed_elsewhere_after_its_worker_and_redis_were_killed(servers, world_in):
    realm = await servers.realm("paused")
    async with world_in(realm) as world, crew(realm.data_dir) as members:
        world.choose = nobody
        await members.start("first")
        tasks = TASKS[:3]
        for task in tasks:
            await world.order(world.tenant(task.task_id), task, thread=task.task_id)
        waiting = [await world.request(world.tenant(task.task_id)) for task in tasks]
        await members.kill("first")
        if servers.owns_redis:
            await servers.restart_redis()
        decided = [await world.decide(request, "approve") for request in waiting]
        assert world.witness.accepted == {}
        assert [await world.effects(world.tenant(task.task_id)) for task in tasks] == [[], [], []]

        await members.start("second")
        await world.until_answered(*decided)
        world.choose = lambda request: None if request in waiting else ("approve", None)
        await world.until_ended()

        assert set(decided) <= world.witness.accepted.keys()
        assert await world.wrong_end_states(tasks) == []


async def test_work_that_a_killed_worker_left_is_finished_once_and_in_order(servers, world_in, figure):
    realm = await servers.realm("killed")
    kills = 3 if servers.is_kafka else 1
    async with world_in(realm) as world, crew(realm.data_dir) as members:
        await world.model("pace", {"first_token_ms": 150, "tokens_per_s": 0})
        names = ["worker-0", "worker-1"]
        for name in names:
            await members.start(name)
        left = []
        for kill in range(kills):
            for task in TASKS[kill * 8 : kill * 8 + 8]:
                await world.order(world.tenant(task.task_id), task, thread=task.task_id)
            for number in range(QUESTIONS):
                for thread in range(4):
                    await world.ask(world.tenant(f"chat-{kill}"), f"Is this question {number}?", thread=f"chat-{thread}")
            # Work of the wave before may still be running: it is as good to kill.
            dead, unfinished = await kill_in_the_middle(members, realm, *names, at_least=2)
            left.append(unfinished)
            names.remove(dead)
            names.append(f"worker-{kill + 2}")
            await members.start(names[-1])
        await world.until_ended(within_s=150)
        await world.until_answered()

        assert all(unfinished >= 1 for unfinished in left), "every kill must hit running work"
        assert await world.wrong_end_states(TASKS[: kills * 8]) == []
        for kill in range(kills):
            for thread in range(4):
                _assert_in_order(
                    world, [one for one in world.asked if one.startswith(f"{world.tenant(f'chat-{kill}')}:chat-{thread}:")]
                )
        assert await world.letters(0) == []
        figure("killed with unfinished records", left)


async def test_a_service_that_ignores_keys_and_hides_its_effects_is_found_out(staffed, world_in):
    """The control: the journal that says `no effect twice` elsewhere does see one that happens twice."""
    task = next(task for task in TASKS if any(action.name == "modify_pending_order_address" for action in task.actions))
    async with world_in(staffed) as world:
        world.doubles_expected = True
        tenant = world.tenant()
        fault = {"tenant": tenant, "operation": "modify_pending_order_address"}
        await world.back_office_fault(kind="ignore_idempotency_key", **fault)
        await world.back_office_fault(kind="fail_after_effect", how="status", times=1, **fault)
        await world.order(tenant, task)
        await world.until_ended()
        assert await world.doubles() == 1


def _assert_in_order(world: World, query_ids: list[str]) -> None:
    assert len(query_ids) == QUESTIONS
    first_told = list(dict.fromkeys(event.payload.query_id for event in world.heard if isinstance(event.payload, AnswerCompleted)))
    assert [one for one in first_told if one in query_ids] == query_ids
