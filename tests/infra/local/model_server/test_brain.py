"""What the brain says, without HTTP."""

import json

import pytest

from infra.local.data import datasets
from infra.local.model_server import answers, tasks
from infra.local.model_server.completions import ChatRequest, Message, Reply, read_request
from infra.local.model_server.tasks import TaskBook, play

TOOLS = {spec["function"]["name"]: spec["function"]["parameters"] for spec in datasets.retail_tools()}
SEARCH = {"search_articles": {"type": "object", "properties": {"query": {"type": "string"}}}}


@pytest.fixture(scope="module")
def brain(application):
    return application.controls.brain


def request(*messages: Message, tools: dict | None = None, **options) -> ChatRequest:
    return ChatRequest(model="m", messages=messages, tools=tools or {}, **options)


def user(text: str) -> Message:
    return Message("user", text)


def run(task, *, tools=TOOLS, parallel=False, result="done") -> tuple[list[list[str]], Reply]:
    """Play a task to its end. Returns the names of the calls turn by turn, and the last reply."""
    messages, turns = [user(task.instruction)], []
    while (reply := play(task, request(*messages, tools=tools), parallel=parallel)).tool_calls:
        names = tuple(call.name for call in reply.tool_calls)
        ids = tuple(f"{len(messages)}_{index}" for index in range(len(names)))
        messages += [Message("assistant", "", names, ids), *(Message("tool", result, answers=call_id) for call_id in ids)]
        turns.append(list(names))
    return turns, reply


def task_with(count: int):
    return next(task for task in datasets.retail_tasks() if sum(action.mutates for action in task.actions) == count)


def test_every_task_is_played_in_order_one_call_a_turn():
    for task in datasets.retail_tasks("test"):
        turns, closing = run(task)
        assert turns == [[action.name] for action in task.actions]
        assert all(output in closing.text for output in task.outputs)


def test_in_parallel_all_changes_come_in_one_turn_after_the_reads():
    task = task_with(3)
    turns, _ = run(task, parallel=True)
    assert turns[:-1] == [[action.name] for action in task.actions if not action.mutates]
    assert turns[-1] == [action.name for action in task.actions if action.mutates]


def test_a_tool_that_is_not_offered_is_passed_over():
    task = task_with(2)
    offered = {name: schema for name, schema in TOOLS.items() if not name.startswith("get_")}
    turns, _ = run(task, tools=offered)
    assert turns == [[action.name] for action in task.actions if action.name in offered]


def test_arguments_that_a_tool_does_not_declare_are_left_out():
    task = next(task for task in datasets.retail_tasks() if any("user_id" in action.arguments for action in task.actions))
    tools = {action.name: {"properties": {"order_id": {}}} for action in task.actions}
    reply = play(task, request(user(task.instruction), tools=tools), parallel=False)
    assert set(reply.tool_calls[0].arguments) <= {"order_id"}


def test_a_rejected_change_is_not_repeated_and_is_owned_up_to():
    turns, closing = run(task_with(2), result="A person rejected this call; it was not run.")
    assert len(turns) == len(task_with(2).actions)
    assert "2 of them were not approved" in closing.text


def test_an_instruction_is_found_inside_a_longer_message_and_in_other_blanks():
    book = TaskBook(datasets.retail_tasks())
    task = datasets.retail_tasks()[5]
    assert book.find(f"Hello!\n{task.instruction.replace(' ', '  ')}\n[parallel]") == task
    assert book.find("Hello!") is None
    assert TaskBook([]).find("Hello!") is None


async def test_the_mark_in_the_text_or_the_flag_makes_changes_parallel(brain):
    task = next(task for task in datasets.retail_tasks("train") if [a.mutates for a in task.actions] == [True, True])
    marked = await brain.reply(request(user(f"{task.instruction} {tasks.PARALLEL_MARK}"), tools=TOOLS))
    plain = await brain.reply(request(user(task.instruction), tools=TOOLS))
    assert (len(marked.tool_calls), len(plain.tool_calls)) == (2, 1)


async def test_a_task_without_tools_is_small_talk(brain):
    assert (await brain.reply(request(user(datasets.retail_tasks()[0].instruction)))).text


async def test_a_follow_up_that_is_a_question_is_searched(brain):
    reply = await brain.reply(
        request(user("Where is my card?"), Message("assistant", "There."), user("How do I pay?"), tools=SEARCH)
    )
    assert [call.name for call in reply.tool_calls] == ["search_articles"]


async def test_passages_in_the_prompt_are_answered_from_without_a_tool(brain):
    passages = "[1] Cats\nCats sleep all day.\n\n[2] Domains\nA domain costs 14 dollars."
    prompt = f"Answer from these:\n\n{passages}\n\nQuestion: What does a domain cost?"
    assert "A domain costs 14 dollars. [2]" in (await brain.reply(request(user(prompt)))).text


async def test_a_request_to_summarise_quotes_what_was_asked(brain):
    reply = await brain.reply(request(Message("system", "Summarize the conversation."), user("I lost my card. Help!")))
    assert "I lost my card." in reply.text


async def test_the_same_request_gets_the_same_reply(brain):
    asked = request(user("I want a refund for my lost card"), schema=_triage_schema(["refund", "card"]))
    assert await brain.reply(asked) == await brain.reply(asked)


def _triage_schema(intents: list[str], **more) -> dict:
    properties = {
        "intent": {"enum": intents},
        "priority": {"enum": ["low", "normal", "high", "urgent"]},
        "needs_person": {"type": "boolean"},
        "summary": {"type": "string"},
    }
    return {"type": "object", "properties": properties | more}


async def test_unknown_intents_are_chosen_by_the_meaning_of_their_names(brain):
    schema = _triage_schema(["refund_request", "delivery_delay", "password_reset"])
    for text, intent in (
        ("My parcel has not arrived for two weeks.", "delivery_delay"),
        ("I forgot the secret word for my login.", "password_reset"),
        ("Give me my money back!", "refund_request"),
    ):
        reply = await brain.reply(request(user(text), schema=schema))
        assert json.loads(reply.text)["intent"] == intent


async def test_a_ticket_without_a_known_intent_is_other_and_goes_to_a_person(brain):
    schema = _triage_schema([*datasets.intents(), "other"])
    reply = await brain.reply(request(user("asdf qwer zxcv"), schema=schema))
    assert json.loads(reply.text)["intent"] == "other"
    assert json.loads(reply.text)["needs_person"] is True


def framed(text: str) -> Message:
    return user(f"<ticket>\n<title></title>\n<body>{text}</body>\n</ticket>")


def answered(intent: str, *, priority: str = "low") -> Message:
    return Message("assistant", json.dumps({"intent": intent, "priority": priority, "needs_person": True, "summary": "Shown."}))


async def test_the_last_ticket_is_sorted_as_examples_of_its_kind_were_and_not_as_others(brain):
    schema = _triage_schema(list(datasets.intents()))
    lost, fees = framed("I lost my card yesterday"), framed("Why was I charged a fee for a transfer?")
    asked = framed("My card is lost, what now?")
    plain = json.loads((await brain.reply(request(asked, schema=schema))).text)
    assert plain["intent"] == "lost_or_stolen_card"
    shown = (fees, answered("topping_up_by_card"), lost, answered("card_arrival", priority="urgent"))
    found = json.loads((await brain.reply(request(*shown, asked, schema=schema))).text)
    assert (found["intent"], found["priority"], found["needs_person"]) == ("card_arrival", "urgent", True)
    assert found["summary"] == plain["summary"]
    unlike = json.loads((await brain.reply(request(*shown[:2], asked, schema=schema))).text)
    assert unlike == plain


async def test_a_repair_after_examples_is_of_the_last_ticket_whose_own_answer_is_no_example(brain):
    schema = _triage_schema(list(datasets.intents()))
    shown = (framed("Why was I charged a fee for a transfer?"), answered("topping_up_by_card"))
    asked, bad = framed("How do I activate my new card?"), answered("lost_or_stolen_card")
    complaint = user("That does not fit the schema: summary: too long. Answer again, with all fields.")
    repaired = await brain.reply(request(*shown, asked, bad, complaint, schema=schema))
    assert json.loads(repaired.text)["intent"] == "activate_my_card"


async def test_a_repair_request_is_filled_from_the_ticket_not_from_the_complaint(brain):
    ticket, complaint = "How do I activate my new card?", "Your answer is not valid JSON for the schema."
    schema = _triage_schema(list(datasets.intents()))
    repaired = await brain.reply(request(user(ticket), Message("assistant", "{"), user(complaint), schema=schema))
    assert json.loads(repaired.text)["intent"] == "activate_my_card"


def test_an_answer_quotes_only_what_a_passage_says_under_its_own_marker():
    articles = {article.article_id: article for article in datasets.articles()}
    answered = hits = 0
    for question in [q for q in datasets.questions() if q.article_ids][:60]:
        others = [a for a in articles.values() if a.tenant == question.tenant and a.article_id not in question.article_ids][:4]
        shown = [articles[question.article_ids[0]], *others]
        text = "\n\n".join(f"[{number}] {article.title}\n{article.text}" for number, article in enumerate(reversed(shown), 1))
        passages = answers.read_passages(text)
        said = answers.answer(question.text, passages)
        answered += said != answers.CANNOT_ANSWER
        hits += "[5]" in said
        for part in filter(None, said.split("]")) if said != answers.CANNOT_ANSWER else ():
            sentence, number = part.rsplit("[", 1)
            assert sentence.strip() in " ".join(passages[int(number) - 1].text.split())
    assert answered >= 55
    assert hits >= 48


def test_a_question_about_something_else_is_not_answered():
    passages = answers.read_passages("[1] Cats\nCats sleep all day. They like fish.")
    assert answers.answer("How can I change the currency of my shop?", passages) == answers.CANNOT_ANSWER


def test_a_request_is_read_as_providers_read_it():
    body = {
        "model": "m",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "content": "r", "tool_call_id": "c"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        "tool_choice": "none",
    }
    read = read_request(body)
    assert read.asked == "one two"
    assert [message.role for message in read.since_asked] == ["assistant", "tool"]
    assert read.tools == {}
    assert read_request(body | {"tool_choice": "required"}).must_call is True
