"""query.cancelled reaches a query that runs: the model is broken off, the answer ends once, and the thread goes on."""

import re
from typing import Any

import anyio
import pytest

from infra.local.data import datasets
from tests.stories.world import World
from topics.events import AnswerDelta, AnswerFailed, QueryCancelled
from workers.demo.crew import crew

pytestmark = [pytest.mark.story, pytest.mark.timeout(240)]

LONG = " ".join(f"word-{number}" for number in range(400))
TOKENS_PER_S = 10.0
ORDER = next(task for task in datasets.retail_tasks() if [action.name for action in task.actions] == ["cancel_pending_order"])


async def _asked_of_model(world: World, mark: str) -> list[dict[str, Any]]:
    entries = (await world.http.get(f"{world.servers.model_control}/requests")).json()["requests"]
    return [entry for entry in entries if mark in entry["asked"]]


async def _call_off(world: World, tenant: str, query_id: str | None) -> None:
    await world.client.publish(QueryCancelled(thread_id="thread", query_id=query_id), tenant=tenant, event_id=f"off-{tenant}")


@pytest.mark.parametrize("named", [True, False])
async def test_a_query_that_runs_is_called_off_and_its_model_call_broken_off(staffed, world_in, named):
    async with world_in(staffed) as world:
        tenant, mark = world.tenant(), f"<{world.prefix}>"
        await world.model("replies", {"match": mark, "text": LONG})
        await world.model("pace", {"first_token_ms": 0, "tokens_per_s": TOKENS_PER_S})
        query = await world.ask(tenant, f"Tell me a long story, {mark}")
        stream = world.witness.streams[query]
        await world.until(lambda: sum(map(len, stream.pieces.values())) >= 2, "the first text")

        await _call_off(world, tenant, query if named else None)
        await world.until_ended(query)
        assert (stream.failed.code, stream.completed) == ("cancelled", None)
        told = len([event for event in world.heard if isinstance(event.payload, AnswerDelta)])

        await world.model("pace", {"first_token_ms": 0, "tokens_per_s": 0})
        again = await world.ask(tenant, "What did I ask you before?")
        await world.until_ended(again)
        assert mark in world.text_of(again), "the thread goes on"

        failures = {event.id for event in world.heard if isinstance(event.payload, AnswerFailed)}
        assert len(failures) == 1, "one outcome, by its id"
        text = "".join(event.payload.text for event in world.heard if _is_of(event, query))
        assert 0 < len(text) < len(LONG) / 2
        assert len([event for event in world.heard if _is_of(event, query)]) == told, "no text after the end"
        (entry,) = await _asked_of_model(world, "long story")
        whole_s = len(re.findall(r"\S+", LONG)) / TOKENS_PER_S
        assert entry["took_ms"] < whole_s * 1000 / 2, "the model's server saw its client leave"


def _is_of(event: Any, query_id: str) -> bool:
    return isinstance(event.payload, AnswerDelta) and event.payload.query_id == query_id


async def test_a_query_that_waits_for_its_turn_is_called_off_before_the_model_is_asked(staffed, world_in):
    async with world_in(staffed) as world:
        tenant, mark = world.tenant(), f"<{world.prefix}>"
        await world.model("faults", {"kind": "delay", "delay_s": 2.0, "match": f"slow {mark}"})
        slow = await world.ask(tenant, f"slow {mark}")
        next_one = await world.ask(tenant, f"unwanted {mark}")
        await _call_off(world, tenant, next_one)
        await world.until_ended()
        assert world.witness.streams[slow].completed is not None
        assert world.witness.streams[next_one].failed.code == "cancelled"
        assert await _asked_of_model(world, "unwanted") == []


@pytest.mark.parametrize(("at", "named"), [("its model writes", True), ("its tool runs", False)])
async def test_a_query_that_another_process_resumed_hears_that_it_is_called_off(servers, world_in, at, named):
    """P2, P3: what was approved and has begun is finished and told; the query then ends at once, and once."""
    realm = await servers.realm(f"resumed-{at.split()[1]}")
    async with world_in(realm) as world, crew(realm.data_dir) as members:
        await members.start("questions", ["query"])
        await members.start("decisions", ["approvals"])
        tenant, mark = world.tenant(), f"<{world.prefix}>"
        await world.model("replies", {"match": mark, "text": LONG, "skip": 1})  # the first one orders
        await world.model("pace", {"first_token_ms": 0, "tokens_per_s": TOKENS_PER_S})
        if at == "its tool runs":
            await world.back_office_fault(kind="delay", tenant=tenant, operation=ORDER.actions[0].name, delay_s=4.0)
        query = await world.ask(tenant, f"{ORDER.instruction} {mark}", user=ORDER.user_id)
        request = await world.request(tenant)
        stream = world.witness.streams[query]
        if at == "its tool runs":
            await _until_delayed(world)
        else:
            await world.until(lambda: sum(map(len, stream.pieces.values())) >= 2, "the first text")

        await _call_off(world, tenant, query if named else None)
        await world.until_ended(query)
        assert (stream.failed.code, stream.completed) == ("cancelled", None)
        assert world.witness.executed[request.approval_id].status == "ok"
        assert len(await world.effects(tenant)) == 1
        assert len(await _asked_of_model(world, mark)) <= 2

        await world.model("pace", {"first_token_ms": 0, "tokens_per_s": 0})
        again = await world.ask(tenant, "Hello, who are you?")
        await world.until_ended(again)
        assert len({event.id for event in world.heard if isinstance(event.payload, AnswerFailed)}) == 1, "one outcome, by its id"


async def _until_delayed(world: World) -> None:
    with anyio.fail_after(60):
        while True:
            armed = (await world.http.get(f"{world.servers.back_office}/control/faults")).json()
            if any(one["struck"] for one in armed["faults"]):
                return
            await anyio.sleep(0.05)
