"""`join(astream(x)) == ainvoke(x)` for every chain, however the model cuts its text; and what is told on the topic is it too.

Case 29: a step that waits for the whole text turns a stream into one chunk.
"""

import json
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableGenerator, RunnableLambda, RunnableParallel

from flows import triage
from flows.agent.folding import summary_chain
from flows.answer_filter import shown_chunks, shown_text
from flows.intents import BANKING77
from flows.links import NO_LINKS
from tests.fakes.agents import THREAD, World, adds_up
from tests.fakes.chat_model import Script, say
from tests.fakes.clock import FakeClock
from tests.flows.test_answer_filter import CARD, FAMILY, KEY, PARTS
from topics.events import AnswerDelta

USAGE = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
TEXT = st.lists(st.sampled_from(PARTS), min_size=1, max_size=10).map(" ".join).filter(lambda text: bool(shown_text(text).strip()))


class CutModel(BaseChatModel):
    """Says one text, whole or in these pieces; the second waits until the first was told, if that is to be seen."""

    pieces: list[str]
    told_first: Any = None

    @property
    def _llm_type(self) -> str:
        return "cut"

    def _generate(self, *_args: Any, **_kwargs: Any) -> ChatResult:
        raise NotImplementedError  # nothing of ours blocks

    async def _agenerate(self, _messages: list[BaseMessage], *_args: Any, **_kwargs: Any) -> ChatResult:
        message = AIMessage("".join(self.pieces), response_metadata={"finish_reason": "stop"}, usage_metadata=USAGE)
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _astream(self, _messages: list[BaseMessage], *_args: Any, **_kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        for number, piece in enumerate(self.pieces):
            yield ChatGenerationChunk(message=AIMessageChunk(piece))
            await anyio.lowlevel.checkpoint()
            if number == 0 and self.told_first is not None:
                await self.told_first.wait()
        end = AIMessageChunk("", response_metadata={"finish_reason": "stop"}, usage_metadata=USAGE)
        yield ChatGenerationChunk(message=end)

    def bind_tools(self, _tools: Any, **_kwargs: Any) -> Any:
        return self

    def with_structured_output(self, _schema: Any, **_kwargs: Any) -> Any:
        nothing = RunnableLambda(lambda _: None)
        return RunnableParallel(raw=self, parsed=nothing, parsing_error=nothing)


def pieces_of(text: str, places: list[int]) -> list[str]:
    cuts = sorted({place % (len(text) + 1) for place in places} | {0, len(text)})
    return [text[begin:end] for begin, end in pairwise(cuts)]


async def joined(chain: Runnable[Any, Any], given_: Any) -> Any:
    whole: Any = None
    async for chunk in chain.astream(given_):
        whole = chunk if whole is None else whole + chunk
    return whole


@settings(max_examples=40, deadline=None)
@given(TEXT, st.lists(st.integers(0, 500), max_size=12))
async def test_an_answers_chain_streams_what_it_would_say_at_once(text, places):
    chain = CutModel(pieces=pieces_of(text, places)) | RunnableGenerator(shown_chunks)
    streamed, at_once = await joined(chain, "x"), await chain.ainvoke("x")
    assert streamed.text == at_once.text == shown_text(text)
    assert streamed.usage_metadata == at_once.usage_metadata == USAGE


@settings(max_examples=20, deadline=None)
@given(st.text(min_size=1).filter(str.strip), st.lists(st.integers(0, 500), max_size=12))
async def test_a_summarys_chain_streams_what_it_would_say_at_once(text, places):
    text = text.replace("\x00", "") + "."
    chain = summary_chain(CutModel(pieces=pieces_of(text, places)))
    fields = {"summary": "", "exchanges": "{}", "words": 100}
    assert await joined(chain, fields) == await chain.ainvoke(fields)


@settings(max_examples=20, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=60), st.lists(st.integers(0, 500), max_size=12))
async def test_a_triages_chain_streams_what_it_would_say_at_once(summary, places):
    found = {"intent": BANKING77[0], "priority": "low", "needs_person": False, "summary": summary}
    model = CutModel(pieces=pieces_of(json.dumps(found), places))
    chain = triage.build_triage(model)._ask
    assert await joined(chain, {"title": "t", "body": "b"}) == await chain.ainvoke({"title": "t", "body": "b"})


@settings(max_examples=40, deadline=None)
@given(TEXT, st.lists(st.integers(0, 500), max_size=12), st.sampled_from([0.0, 0.05, 1.0]))
async def test_what_is_told_joins_to_what_is_stored_and_both_are_what_may_be_shown(text, places, step_s):
    """P9, on the path from chunks to events."""
    world = World(script=Script(turns=[say(*pieces_of(text, places))]))
    world.clock.step_s = step_s
    told = await world.ask()
    assert adds_up(told).text == shown_text(text, NO_LINKS)
    assert (await world.messages())[-1].text == shown_text(text, NO_LINKS)


async def test_four_tokens_are_four_deltas_and_the_first_is_told_before_the_last_is_made():
    """Case 29, with every delta due at once."""
    model = CutModel(pieces=["Dear ", "customer", ", all ", "is well."], told_first=anyio.Event())
    world = World(clock=FakeClock(step_s=1.0))
    agent = world.agent(model=model)
    told: list[str] = []
    with anyio.fail_after(5):
        async for payload in agent.ask(THREAD, query_id="q1", text="x", user_id=None, fence=1):
            told += [payload.text] if isinstance(payload, AnswerDelta) else []
            model.told_first.set()
    assert told == model.pieces


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        (["Your key is s", "k-", "a1B2a1B2a1B2a1B2", "a1B2", " now."], "Your key is ⟨secret removed⟩ now."),
        (["Pay with 4111 ", "1111 1111", " 1111."], "Pay with ⟨secret removed⟩."),
        (["See [here](htt", "ps://evil.exam", "ple/x) or ", "[1]."], "See [here] or [1]."),
    ],
)
async def test_no_delta_ever_held_what_may_not_be_shown(pieces, shown):
    world = World(script=Script(turns=[say(*pieces)]), clock=FakeClock(step_s=1.0))
    told = await world.ask()
    assert adds_up(told).text == shown
    everything = "".join(payload.model_dump_json() for payload in told)
    assert not [part for part in ("a1B2", "1111", "evil.exam", KEY, CARD) if part in everything]


async def test_a_family_stays_together_in_one_delta():
    """Case 4."""
    world = World(script=Script(turns=[say("Hi ", *FAMILY, "!")]), clock=FakeClock(step_s=1.0))
    texts = [payload.text for payload in await world.ask() if isinstance(payload, AnswerDelta)]
    assert [text for text in texts if FAMILY in text]
    assert not [text for text in texts if text.startswith("\u200d") or text.endswith("\u200d")]
