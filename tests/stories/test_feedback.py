"""Feedback, from a topic to where operators see it."""

import anyio
import pytest

from infra.local.data import datasets
from tests.stories.collector import Span, collecting
from tests.stories.test_offsets import sluice
from topics.catalogue import FEEDBACK, QUERIES
from topics.events import FeedbackGiven
from workers.demo.crew import crew
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


PERSONAL = ("jane.roe", "555-1234", "jane_roe_77")


async def test_feedback_is_seen_on_the_trace_of_its_question_and_on_its_thread_and_says_nothing_personal(servers, world_in):
    """P11. Nobody who asks or gives feedback has a trace of their own."""
    with collecting() as collector:
        realm = await servers.realm("heard", otlp_endpoint=collector.endpoint)
        async with world_in(realm) as world, crew(realm.data_dir) as members:
            await members.start("worker-1")
            tenant = world.tenant()
            question = "Hello, who are you? I am jane.roe@example.com, 555-1234"
            query_id = await world.ask(tenant, question, thread="chat", user="jane_roe_77")
            await world.until_ended()
            given = FeedbackGiven(thread_id="chat", query_id=query_id, thumb="down", note="too short, says jane.roe, 555-1234")
            for _ in range(2):
                await world.client.publish(given, tenant=tenant, event_id="feedback-1")
            with anyio.fail_after(60):
                while not (await look(realm.settings, tenant=tenant, thread_id="chat")).queries[0].feedback:
                    await anyio.sleep(0.2)
            code, shown, said = await sluice(realm, "threads", "show", "chat", "--tenant", tenant)
            await members.stop("worker-1")

    asked = one_of(collector.spans(), f"process {realm.catalogue.name(QUERIES)}")
    record = one_of(collector.spans(), f"process {realm.catalogue.name(FEEDBACK)}")
    told = one_of(collector.spans(), "feedback")
    assert asked.attributes["messaging.message.id"] == query_id
    assert (told.trace, told.parent) == (asked.trace, asked.id), "in the question's trace"
    assert told.links == ((record.trace, record.id),)
    assert (asked.trace, asked.id) in record.links
    assert record.attributes["gen_ai.conversation.id"] == "chat"
    name, score = told.events[0]
    assert name == "gen_ai.evaluation.result"
    assert score == {
        "gen_ai.evaluation.name": "user_feedback",
        "gen_ai.evaluation.score.label": "down",
        "gen_ai.evaluation.score.value": 0.0,
    }
    assert [one for one in PERSONAL for body in collector.bodies if one.encode() in body] == []

    assert code == 0, said
    assert f"trace 00-{asked.trace.hex()}-{asked.id.hex()}" in shown
    assert "feedback: down, (34 characters; --reveal shows them)" in shown
    assert [one for one in PERSONAL if one in shown] == []


def one_of(spans: list[Span], name: str) -> Span:
    (found,) = [one for one in spans if one.name == name]
    return found
