"""A tenant's budget of runs, across processes: what has begun goes on, what is over ends so, and nothing becomes a dead letter."""

import pytest

from infra.local.data import datasets
from tests.stories.world import nobody
from workers import dead_letters
from workers.demo.crew import crew

pytestmark = [pytest.mark.story, pytest.mark.timeout(180)]

CANCEL = next(task for task in datasets.retail_tasks() if [action.name for action in task.actions] == ["cancel_pending_order"])


async def test_a_query_over_the_budget_of_runs_fails_while_one_that_waited_goes_on_in_another_process(servers, world_in):
    realm = await servers.realm("runs", tenant_budgets={"*": {"runs": 2}})
    async with world_in(realm) as world, crew(realm.data_dir) as members:
        world.choose = nobody
        await members.start("worker-1")
        tenant, other = world.tenant("one"), world.tenant("two")
        order = await world.order(tenant, CANCEL)
        request = await world.request(tenant)
        second = await world.ask(tenant, "Hello", thread="second")
        await world.until_ended(second)
        over = [await world.ask(tenant, "Hello", thread=f"over-{number}") for number in range(3)]
        others = await world.ask(other, "Hello")
        await world.until_ended(*over, others)
        await members.stop("worker-1")

        await members.start("worker-2")
        await world.decide(request, "approve")
        await world.until_ended(order)
        streams = world.witness.streams
        failures = [streams[one].failed for one in over]
        assert [failed.code for failed in failures if failed] == ["budget_exceeded"] * 3
        assert all(streams[one].completed for one in (order, second, others))
        assert len(await world.effects(tenant)) == 1
        letters = dead_letters.select(await world.operations.load(), dead_letters.Filter(), states=dead_letters.STATES)
        assert letters == []
        await members.stop("worker-2")
