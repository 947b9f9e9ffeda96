"""The real clients of langchain-openai against the server over real HTTP."""

import json
from typing import Literal

import openai
import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from pydantic import BaseModel, Field

from infra.local.data import datasets

PASSAGES = "[1] Domains > Buying\nA domain costs 14 dollars a year. Buy it under Settings.\n\n[2] Cats\nCats sleep all day."


@tool
def search_articles(query: str) -> str:
    """Search the help articles."""
    return query


@tool
def cancel_pending_order(order_id: str, reason: str) -> str:
    """Cancel an order."""
    return order_id + reason


class Triaged(BaseModel):
    """What triage finds."""

    intent: Literal[datasets.intents()]
    priority: Literal["low", "normal", "high", "urgent"]
    needs_person: bool
    summary: str = Field(max_length=120)


class Place(BaseModel):
    street: str
    floors: list[int] = Field(min_length=1)
    kind: Literal["house", "shop"] | None


def test_a_plain_call_gets_text_usage_and_a_finish_reason(server):
    said = server.chat().invoke("Good morning")
    assert "Good morning" in said.content
    assert said.response_metadata["finish_reason"] == "stop"
    assert said.usage_metadata["total_tokens"] == said.usage_metadata["input_tokens"] + said.usage_metadata["output_tokens"] > 0


async def test_streamed_text_joined_is_the_text_of_a_plain_call(server, connections):
    asked = "Grüße \N{PARTY POPPER}\N{PARTY POPPER} " + "\u4f60\u597d" * 12 + "  twice  blank"
    whole = server.chat().invoke(asked).content
    parts = [part async for part in server.chat(stream_usage=True, http_async_client=connections).astream(asked)]
    assert "".join(part.content for part in parts) == whole
    assert len([part for part in parts if part.content]) > 5
    assert any(part.usage_metadata for part in parts)
    assert [part.response_metadata["finish_reason"] for part in parts if "finish_reason" in part.response_metadata] == ["stop"]


def test_usage_is_streamed_only_when_asked_for(server):
    assert not any(part.usage_metadata for part in server.chat(stream_usage=False).stream("hello"))


def test_a_question_is_searched_then_answered_with_markers(server):
    model = server.chat().bind_tools([search_articles])
    question = HumanMessage("What does a domain cost a year?")
    called = model.invoke([question])
    assert [(call["name"], call["args"]) for call in called.tool_calls] == [("search_articles", {"query": question.content})]
    assert called.response_metadata["finish_reason"] == "tool_calls"
    answer = model.invoke([question, called, ToolMessage(PASSAGES, tool_call_id=called.tool_calls[0]["id"])])
    assert answer.content.startswith("A domain costs 14 dollars a year. [1]")
    assert "[2]" not in answer.content


def test_without_passages_it_says_that_it_cannot_answer(server):
    model = server.chat().bind_tools([search_articles])
    question = HumanMessage("What does a domain cost a year?")
    called = model.invoke([question])
    answer = model.invoke([question, called, ToolMessage("No passages were found.", tool_call_id=called.tool_calls[0]["id"])])
    assert answer.content.startswith("I cannot answer")


def test_streamed_tool_calls_come_in_pieces_and_join_to_valid_arguments(server):
    model = server.chat().bind_tools([search_articles])
    parts = list(model.stream("Where is the money that I sent on Monday?"))
    whole = parts[0]
    for part in parts[1:]:
        whole += part
    assert len([part for part in parts if part.tool_call_chunks]) > 3
    assert whole.tool_calls[0]["args"] == {"query": "Where is the money that I sent on Monday?"}


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_triage_comes_as_structured_output(server, method):
    model = server.chat().with_structured_output(Triaged, method=method)
    triaged = model.invoke("Subject: help\n\nMy card was stolen and somebody is using it! Please block it.")
    assert triaged.intent in {"lost_or_stolen_card", "compromised_card"}
    assert (triaged.priority, triaged.needs_person) == ("urgent", True)
    assert 0 < len(triaged.summary) <= 120


def test_any_other_schema_gets_a_valid_instance(server):
    place = server.chat().with_structured_output(Place).invoke("I bought a shop on Main Street")
    assert place.kind == "shop"
    assert place.street == "I bought a shop on Main Street"


async def test_a_batch_keeps_its_order(server, connections):
    tickets = datasets.tickets()[:40]
    model = server.chat(http_async_client=connections).with_structured_output(Triaged)
    triaged = await model.abatch([ticket.text for ticket in tickets], config={"max_concurrency": 20})
    hits = sum(found.intent == ticket.intent for found, ticket in zip(triaged, tickets, strict=True))
    assert hits >= 34


def test_a_retail_task_is_played_to_its_end(server):
    task = next(task for task in datasets.retail_tasks() if task.outputs and any(action.mutates for action in task.actions))
    model = server.chat().bind_tools([{"type": "function", "function": spec["function"]} for spec in datasets.retail_tools()])
    messages = [HumanMessage(task.instruction)]
    made = []
    while (said := model.invoke(messages)).tool_calls:
        (call,) = said.tool_calls
        made.append((call["name"], call["args"]))
        messages += [said, ToolMessage("whatever", tool_call_id=call["id"])]
    assert made == [(action.name, action.arguments) for action in task.actions]
    assert all(output in said.content for output in task.outputs)


def test_a_follow_up_is_told_what_was_asked_before(server):
    said = server.chat().invoke([HumanMessage("Cancel my order."), AIMessage("Done."), HumanMessage("What did I ask before?")])
    assert "You asked before" in said.content
    assert "Cancel my order." in said.content


async def test_embeddings_are_unit_vectors_in_order_and_the_same_alone_or_together(server, connections):
    model = server.embeddings(http_async_client=connections)
    texts = ["a much longer text about the delivery of a card", "short", "short"]
    together = await model.aembed_documents(texts)
    alone = await model.aembed_query("short")
    assert [len(vector) for vector in together] == [384] * 3
    assert all(abs(sum(x * x for x in vector) - 1) < 1e-5 for vector in together)
    assert together[1] == together[2] == alone
    assert together[0] != together[1]


def test_a_dangling_tool_call_is_refused_as_a_provider_would(server):
    call = {"name": "search_articles", "args": {}, "id": "call_1"}
    with pytest.raises(openai.BadRequestError, match="call_1"):
        server.chat().invoke([HumanMessage("a"), AIMessage("", tool_calls=[call]), HumanMessage("b")])
    with pytest.raises(openai.BadRequestError, match="tool message"):
        server.chat().invoke([HumanMessage("a"), ToolMessage("b", tool_call_id="call_1")])


def test_a_scripted_call_may_carry_broken_arguments_and_its_own_id(server):
    call = {"name": "cancel_pending_order", "arguments": '{"order_id": ', "id": "same"}
    server.control("replies", [{"match": "break it", "tool_calls": [call]}])
    said = server.chat().bind_tools([cancel_pending_order]).invoke("break it")
    assert [(call["id"], call["args"]) for call in said.invalid_tool_calls] == [("same", '{"order_id": ')]


def test_scripted_replies_are_used_up_in_order(server):
    server.control("replies", [{"match": "x", "text": "one"}, {"match": "x", "text": "two", "times": 2}])
    assert [server.chat().invoke("x").content for _ in range(3)] == ["one", "two", "two"]
    assert server.chat().invoke("x").content not in {"one", "two"}


def test_ids_of_two_completions_of_one_request_differ(server):
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": [], "response_format": None}
    first, second = (server.http.post("/v1/chat/completions", content=json.dumps(body)).json() for _ in range(2))
    assert first["choices"] == second["choices"]
    assert first["id"] != second["id"]
