"""Feedback, from a topic to where operators see it."""

import anyio
import pytest

from infra.local.data import datasets
from topics.events import FeedbackGiven
from workers.threads import look

pytestmark = [pytest.mark.story, pytest.mark.timeout(180)]


async def test_feedback_lands_on_its_question_once_however_often_it_is_sent(staffed, world_in):
    async with world_in(staffed) as world:
        tenant = world.tenant()
        query_id = await world.ask(tenant, "Hello, who are you?", thread="chat")
        given = FeedbackGiven(thread_id="chat", query_id=query_id, thumb="up", note="quick")
        for _ in range(2):
            await world.client.publish(given, tenant=tenant, event_id="feedback-1")  # nobody waits for the answer first
        await world.client.publish(FeedbackGiven(thread_id="chat", thumb="down"), tenant=tenant, event_id="feedback-2")
        await world.until_ended()
        with anyio.fail_after(60):
            while True:
                seen = await look(staffed.settings, tenant=tenant, thread_id="chat")
                if seen.loose and seen.standing == "finished" and seen.queries[0].feedback:
                    break
                await anyio.sleep(0.2)

        assert [(one.feedback_id, one.thumb, one.note) for one in seen.queries[0].feedback] == [("feedback-1", "up", "quick")]
        assert [one.feedback_id for one in seen.loose] == ["feedback-2"]
        assert (seen.queries[0].outcome, seen.exchanges) == ("unanswerable", 1)
        assert (await look(staffed.settings, tenant=f"{tenant}-other", thread_id="chat")).standing == "unknown"


async def test_a_thread_that_waits_names_what_it_waits_for(staffed, world_in):
    async with world_in(staffed) as world:
        world.choose = lambda _: None
        tenant = world.tenant()
        await world.order(tenant, datasets.retail_tasks()[0], thread="order")
        request = await world.request(tenant)
        seen = await look(staffed.settings, tenant=tenant, thread_id="order")
        assert seen.standing == "waits for people"
        assert [one.request.approval_id for one in seen.pending] == [request.approval_id]
        await world.decide(request, "approve")
        await world.until_ended()
        seen = await look(staffed.settings, tenant=tenant, thread_id="order")
        assert (seen.standing, seen.pending, dict(seen.queries[0].calls)) == ("finished", (), {"ok": 1})
