"""What is said comes back as it was said, through topic, hold, checkpoint, resume and reply; what nobody knows is said to be so."""

import json

import pytest

from flows import prompts
from infra.local.data import datasets
from tests.stories.world import World, nobody
from topics.catalogue import QUERIES

pytestmark = [pytest.mark.story, pytest.mark.timeout(180)]

CANCEL = next(task for task in datasets.retail_tasks() if [action.name for action in task.actions] == ["cancel_pending_order"])
QUESTION = "How many moons does the returns department of Zanzibar observe?"
FAMILY = "\N{WOMAN}\u200d\N{WOMAN}\u200d\N{GIRL}"
TEXTS = {
    "caf\ud83d broken": "caf\N{REPLACEMENT CHARACTER} broken",
    "nu\x00ll": "null",
    "\u202e\u05e9\u05dc\u05d5\u05dd": "\u202e\u05e9\u05dc\u05d5\u05dd",
    f"we are a {FAMILY} of three": f"we are a {FAMILY} of three",
}


async def _write(world: World, tenant: str, number: int, text: str) -> str:
    """Ask with JSON that escapes what no client of ours would send."""
    query_id = f"{tenant}-odd-{number}"
    world.asked[query_id] = tenant
    headers = (("ce_id", query_id.encode()), ("ce_type", b"query.asked"), ("ce_tenant", tenant.encode()))
    body = json.dumps({"thread_id": "thread", "text": text}).encode("ascii")
    await world.write(world.realm.catalogue.name(QUERIES), f"{tenant}/thread".encode(), body, headers)
    return query_id


async def _model_calls(world: World, asked: str) -> int:
    entries = (await world.http.get(f"{world.servers.model_control}/requests")).json()["requests"]
    return sum(entry["asked"] == asked and entry["path"].endswith("/chat/completions") for entry in entries)


async def test_odd_text_is_mended_once_and_is_the_same_after_hold_checkpoint_and_resume(staffed, world_in):
    """Case 4."""
    async with world_in(staffed) as world:
        world.choose = nobody
        tenant = world.tenant()
        await world.order(tenant, CANCEL)
        request = await world.request(tenant)
        odd = [await _write(world, tenant, number, text) for number, text in enumerate(TEXTS)]
        reply = await world.ask(tenant, "What did I ask you before?")
        await world.until(lambda: all(world.witness.streams[one].held for one in (*odd, reply)), "all to be held")
        await world.decide(request, "approve")
        await world.until_ended()

        assert [stored for stored in TEXTS.values() if stored not in world.text_of(reply)] == []
        for stored in TEXTS.values():
            assert await _model_calls(world, stored) == 1, "a text that was bad is no reason to ask again"


async def test_a_question_that_no_article_answers_is_said_to_be_unanswerable(staffed, world_in):
    async with world_in(staffed) as world:
        query = await world.ask(world.tenant(), QUESTION)
        await world.until_ended()
        completed = world.witness.streams[query].completed
        assert (completed.outcome, completed.text, completed.citations) == ("unanswerable", prompts.UNANSWERABLE, ())
        assert await _model_calls(world, QUESTION) == 1, "the model is not asked to make something up"
