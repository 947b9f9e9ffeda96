"""How queries end: answered, not answerable, failed; with memory, citations and usage."""

from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.callbacks import AsyncCallbackHandler
from langgraph._internal import _constants as langgraph_constants

from flows import prompts
from flows.agent.search import NO_PASSAGES
from flows.agent.state import KEPT_QUERIES
from flows.agent.threads import AgentLimits, ThreadRef
from flows.ports import Passage
from tests.fakes.agents import World, adds_up, one, only
from tests.fakes.chat_model import Script, Turn, call, say
from tests.fakes.retriever import FakeRetriever, passage
from topics import events
from topics.errors import BudgetExceededError, ConfigError, RejectedError, UnavailableError


def _world(*turns, **more) -> World:
    return World(script=Script(turns=list(turns)), **more)


def _search(query: str, call_id: str = "s1"):
    return (call_id, "search_articles", {"query": query})


async def test_an_answer_is_told_once_and_remembered_by_the_next_query():
    world = _world(say("I am ", "Sluice."), say("As I said."))
    assert adds_up(await world.ask("who?", query_id="q1")).text == "I am Sluice."
    assert adds_up(await world.ask("again?", query_id="q2")).text == "As I said."
    assert [message.text for message in world.script.prompts[-1][1:]] == ["who?", "I am Sluice.", "again?"]


async def test_threads_of_two_tenants_with_one_name_share_nothing():
    world = _world(say("a"), say("b"))
    await world.ask("secret", thread=ThreadRef("acme", "T"))
    await world.ask("hello", thread=ThreadRef("Acme", "T"), query_id="q2")
    assert "secret" not in str(world.script.prompts[-1])
    name = ThreadRef("acme", "T").checkpoint_id
    assert (len(name), name[0], name) == (41, "t", name.lower())


async def test_a_query_delivered_again_streams_its_answer_whole_under_a_new_attempt():
    world = _world(say("Hello."))
    await world.ask()
    told = await world.ask()
    assert one(events.AnswerRestarted, told).reason == "retry"
    assert one(events.AnswerDelta, told).text == "Hello."
    assert adds_up(told).attempt == 2000
    assert len(world.script.prompts) == 1


async def test_a_query_that_others_followed_is_told_again_while_it_is_kept_and_then_yields_nothing():
    """P1: a dead letter that is replayed, of a process that died before it told what it had saved."""
    world = _world(*(say(f"answer {number}") for number in range(KEPT_QUERIES + 2)))
    first = adds_up(await world.ask(query_id="q0"))
    await world.ask(query_id="q1")
    again = adds_up(await world.ask(query_id="q0"))
    assert (again.query_id, again.text, again.identity()) == ("q0", "answer 0", first.identity())
    for number in range(2, KEPT_QUERIES + 2):
        await world.ask(query_id=f"q{number}")
    assert await world.ask(query_id="q0") == []
    assert len(world.script.prompts) == KEPT_QUERIES + 2


async def test_citations_are_carried_from_the_passages_in_order_of_use():
    found = {"a": [passage("A", article_id="a"), passage("B", article_id="b")], "c": [passage("C", article_id="c")]}
    answer = "See [3], then [1] and [3]; [9] is made up."
    world = _world(call(_search("a"), _search("c", "s2")), say(answer), retriever=FakeRetriever(found))
    done = adds_up(await world.ask())
    assert [(citation.marker, citation.article_id, citation.passage) for citation in done.citations] == [
        (3, "c", "C"),
        (1, "a", "A"),
    ]
    assert done.text == answer
    texts = [message.text for message in world.script.prompts[-1] if message.type == "tool"]
    assert texts == ["[1] Returns > Policy\nA\n\n[2] Returns > Policy\nB", "[3] Returns > Policy\nC"]


async def test_markers_continue_through_a_query_and_start_again_in_the_next():
    world = _world(
        call(_search("a")),
        call(_search("a")),
        say("[2]"),
        call(_search("a")),
        say("[1]"),
        retriever=FakeRetriever({"a": [passage("A")]}),
    )
    assert [citation.marker for citation in adds_up(await world.ask(query_id="q1")).citations] == [2]
    assert [citation.marker for citation in adds_up(await world.ask(query_id="q2")).citations] == [1]


async def test_nothing_found_is_not_answerable_and_the_model_is_not_asked_to_try():
    world = _world(call(_search("x"), _search("y", "s2")))
    done = adds_up(await world.ask())
    assert (done.outcome, done.text, done.citations) == ("unanswerable", prompts.UNANSWERABLE, ())
    assert (done.input_tokens, done.output_tokens) == (10, 5)
    assert len(world.script.prompts) == 1


async def test_nothing_found_beside_another_tool_goes_on_to_the_model():
    world = _world(call(_search("x"), ("c2", "read_order", {"order": "1"})), say("Shipped."))
    assert adds_up(await world.ask()).outcome == "answered"
    assert NO_PASSAGES in [message.text for message in world.script.prompts[-1]]


async def test_a_leaking_index_shows_no_other_tenants_passage():
    retriever = FakeRetriever({"a": [passage("theirs", tenant="globex")]}, leaks=True)
    world = _world(call(_search("a")), retriever=retriever)
    assert adds_up(await world.ask()).outcome == "unanswerable"
    assert "theirs" not in str(await world.messages())
    assert retriever.searches == [("acme", "a")]


@pytest.mark.parametrize(
    ("turn", "code", "text"),
    [
        (say("Half", finish="length"), "truncated", ""),
        (say("Bad", finish="content_filter"), "filtered", ""),
        (Turn(refusal="I can't help with that."), "refused", "I can't help with that."),
        (call(("c1", "add_note", {"text": "n"}), finish="length"), "truncated", ""),
    ],
)
async def test_a_finish_other_than_stop_is_a_failure_and_the_thread_goes_on(turn: Turn, code: str, text: str):
    world = _world(turn, say("Fine."))
    told = await world.ask(query_id="q1")
    failed = one(events.AnswerFailed, told)
    assert (failed.code, failed.text, only(events.AnswerCompleted, told)) == (code, text, [])
    assert world.effects() == []
    assert adds_up(await world.ask(query_id="q2")).text == "Fine."


@pytest.mark.parametrize("turn", [say("", finish="stop"), say("Text", finish="unheard_of"), Turn(text=[[]]), Turn(text=["\x00"])])
async def test_a_turn_without_a_usable_answer_is_tried_again(turn: Turn):
    world = _world(turn, say("Now."))
    with pytest.raises(UnavailableError):
        await world.ask()
    assert adds_up(await world.ask()).text == "Now."


async def test_reasoning_leaves_nowhere():
    blocks = [[{"type": "thinking", "thinking": "internal note", "index": 0}], [{"type": "text", "text": "Hel", "index": 1}]]
    world = _world(Turn(text=[*blocks, [{"type": "text", "text": "lo", "index": 1}]]))
    told = await world.ask()
    assert adds_up(told).text == "Hello"
    assert "internal note" not in str(told) + str(await world.messages())


async def test_too_many_model_calls_end_the_query_whatever_is_approved_between():
    world = World(
        script=Script(answer=lambda _messages: call(("c", "close_account", {"user": "u"}))),
        limits=AgentLimits(max_model_calls_per_query=3),
    )
    told = await world.ask()
    while requests := only(events.ApprovalRequested, told):
        told = await world.resume(requests[0])
    assert one(events.AnswerFailed, told).code == "too_many_steps"
    assert len(world.script.prompts) == 3


def _too_long() -> Turn:
    return Turn(error=RejectedError("too long", code="context_too_long"))


async def test_a_context_that_is_too_long_is_trimmed_once():
    world = _world(say("x" * 800), _too_long(), say("Short."), limits=AgentLimits(history_tokens=700))
    await world.ask("y" * 800, query_id="q1")
    assert adds_up(await world.ask("z", query_id="q2")).text == "Short."
    assert len(world.script.prompts[-1]) < len(world.script.prompts[-2])


async def test_a_request_that_the_provider_rejects_ends_its_query_and_not_the_thread():
    """P1: left open, the step would be run into by every later question."""
    world = _world(Turn(error=RejectedError("no", code="provider_refused_request")), say("Fine."))
    assert one(events.AnswerFailed, await world.ask(query_id="q1")).code == "rejected"
    assert one(events.AnswerCompleted, await world.ask(query_id="q2")).text == "Fine."


async def test_a_query_over_the_tenants_budget_is_told_so_and_the_thread_goes_on_another_day():
    world = _world(Turn(error=BudgetExceededError("used up")), say("Fine."))
    assert one(events.AnswerFailed, await world.ask(query_id="q1")).code == "budget_exceeded"
    assert one(events.AnswerCompleted, await world.ask(query_id="q2")).text == "Fine."


async def test_a_search_over_the_tenants_budget_ends_its_query_as_a_call_of_the_model_would():
    """A rejected search must not leave an open step, which every later question would run into."""
    world = _world(call(_search("returns")), say("Fine."))
    world.retriever = Denied()
    assert one(events.AnswerFailed, await world.ask(query_id="q1")).code == "budget_exceeded"
    world.retriever = FakeRetriever()
    assert one(events.AnswerCompleted, await world.ask(query_id="q2")).text == "Fine."


class Denied(FakeRetriever):
    async def search(self, *, tenant: str, **_: Any) -> Sequence[Passage]:
        raise BudgetExceededError(tenant)


async def test_every_call_of_a_query_says_which_query_it_is_for():
    """So a budget of runs counts it once: from its beginning, through a wait for people, to its end."""
    told: list[tuple[str, str]] = []

    class Listener(AsyncCallbackHandler):
        async def on_chat_model_start(self, *_: Any, metadata: dict[str, Any] | None = None, **__: Any) -> None:
            assert metadata is not None
            told.append((metadata["tenant"], metadata["query"]))

    turns = [call(("c1", "wire_money", {"cents": 500})), say("Sent."), say("Hello.")]
    world = _world(*turns)
    world.callbacks = (Listener(),)
    await world.resume(one(events.ApprovalRequested, await world.ask(query_id="q1")))
    await world.ask(query_id="q2")
    assert told == [("acme", "q1"), ("acme", "q1"), ("acme", "q2")]


async def test_a_context_that_stays_too_long_fails_the_query():
    world = _world(_too_long(), say("Fine."))
    assert one(events.AnswerFailed, await world.ask(query_id="q1")).code == "too_long"
    assert adds_up(await world.ask(query_id="q2")).text == "Fine."


async def test_old_exchanges_leave_the_checkpoint_when_a_query_ends():
    world = World(script=Script(answer=lambda _messages: say("a" * 400)), limits=AgentLimits(history_tokens=600))
    for number in range(8):
        await world.ask("b" * 400, query_id=f"q{number}")
    messages = await world.messages()
    assert 2 <= len(messages) < 8
    assert messages[0].type == "human"


async def test_usage_is_summed_and_unknown_when_one_turn_did_not_say():
    turns = [call(("c1", "read_order", {"order": "1"}), usage=(100, 1)), say("Done.", usage=(200, 2))]
    done = adds_up(await _world(*turns).ask())
    assert (done.input_tokens, done.output_tokens) == (300, 3)
    turns = [call(("c1", "read_order", {"order": "1"}), usage=None), say("Done.", usage=(200, 2))]
    done = adds_up(await _world(*turns).ask())
    assert (done.input_tokens, done.output_tokens) == (None, None)


async def test_text_before_a_tool_call_is_void():
    world = _world(call(("c1", "read_order", {"order": "1"}), text=["Let me ", "look."]), say("Shipped", "."))
    told = await world.ask()
    assert one(events.AnswerRestarted, told).reason == "tool_call"
    assert (adds_up(told).text, adds_up(told).attempt) == ("Shipped.", 1001)


async def test_a_surrogate_pair_split_over_two_chunks_is_one_character():
    told = await _world(say("a\ud83d", "\ude00b\x00", "\ud83d")).ask()
    assert adds_up(told).text == "a\U0001f600b\N{REPLACEMENT CHARACTER}"


async def test_a_langgraph_without_strict_resume_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(langgraph_constants, "CONFIG_KEY_STRICT_RESUME")
    with pytest.raises(ConfigError, match="strict"):
        World().agent()
