"""The model server's summaries say only what was said, keep facts longest, and are what it later answers from."""

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from flows import prompts
from flows.agent import folding
from infra.local.model_server import summaries
from infra.local.model_server.completions import ChatRequest, Message

SEARCH = {"search_articles": {"type": "object", "properties": {"query": {"type": "string"}}}}
FACT = "My order number is #W5544."


@pytest.fixture(scope="module")
def brain(application):
    return application.controls.brain


def order(*said: str, before: str = "", most: int = 300) -> ChatRequest:
    """A request as the agent's fold makes it."""
    exchanges = folding.render([message for text in said for message in (HumanMessage(text), AIMessage("I see."))])
    system = prompts.SUMMARY_RULES.format(words=most)
    asked = f"<summary>\n{before}\n</summary>\n<exchanges>\n{exchanges}\n</exchanges>"
    return ChatRequest(model="m", messages=(Message("system", system), Message("user", asked)))


async def test_what_a_customer_states_is_kept_and_questions_are_not(brain):
    reply = await brain.reply(order(f"Hello! {FACT} Where is it?", "Thanks", before="Customer: I am Kim."))
    assert reply.text == f"Customer: I am Kim.\nCustomer: {FACT}"


async def test_the_oldest_lines_with_the_fewest_facts_go_first(brain):
    said = [f"I have a problem with parcel {number}." for number in range(60)]
    reply = await brain.reply(order(*said, before=f"Customer: {FACT} It cost 49.90 in 2024.", most=60))
    lines = reply.text.splitlines()
    assert len(reply.text) <= 60 * summaries.CHARS_PER_WORD
    assert FACT in lines[0]
    assert "parcel 59" in lines[-1]


async def test_nothing_said_is_nothing_kept_and_is_not_carried_on(brain):
    assert (await brain.reply(order("Hi!"))).text == summaries.NOTHING
    assert (await brain.reply(order(FACT, before=summaries.NOTHING))).text == f"Customer: {FACT}"


def test_other_requests_are_no_summaries():
    assert summaries.asked_for(ChatRequest(model="m", messages=(Message("user", "Summarise this."),))) is None
    assert summaries.asked_for(order()) == summaries.NOTHING


async def test_what_stands_in_the_summary_is_known_and_without_one_it_is_not(brain):
    asked = Message("user", "What is the order number I told you about earlier?")

    async def answer(summary: str) -> str:
        system = Message("system", prompts.system_prompt("Be brief.", summary=summary))
        reply = await brain.reply(ChatRequest(model="m", messages=(system, asked), tools=SEARCH))
        return str(reply.text)

    assert "#W5544" in await answer(f"Customer: I live in Lyon.\nCustomer: {FACT}")
    assert "#W5544" not in await answer("")
