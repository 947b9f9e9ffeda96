"""Cases 24, 25 (iv), 27 and 29: the bytes of providers in, the events of the agent out, through the real client and gateway."""

import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from flows.agent.threads import AgentLimits
from infra.models.breaker import BreakerPolicy
from infra.models.gateway import GatewayChatModel, gateway_model
from infra.models.metering import Unmetered
from infra.models.routing import ProviderEndpoint
from tests.fakes.agents import THREAD, World
from tests.fakes.wire import Reply, Wire, json_reply, sse_reply, wire
from topics.errors import UnavailableError
from topics.events import AnswerCompleted, AnswerDelta, AnswerFailed, AnswerRestarted, Payload

WORDS = ("Dear ", "customer, ", "hi ", "there")
TEXT = "".join(WORDS)
USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}


def chunk(delta: dict[str, Any], *, finish: str | None = None, **extra: Any) -> dict[str, Any]:
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices, **extra}


def no_choices(**extra: Any) -> dict[str, Any]:
    return {**chunk({}), "choices": [], **extra}


def stream(*words: str, **kwargs: Any) -> Reply:
    return sse_reply([*[chunk({"content": word}) for word in words], chunk({}, finish="stop")], **kwargs)


@dataclass
class Desk:
    """An agent whose model is the gateway over two providers, of which b is the spare one."""

    a: Wire
    b: Wire
    model: GatewayChatModel
    world: World = field(default_factory=lambda: World(limits=AgentLimits(delta_interval_s=0, history_tokens=700)))
    told: list[Payload] = field(default_factory=list)

    async def ask(self, text: str = "hello", *, query_id: str = "q1") -> list[Payload]:
        """One try at a question. What was told before a failure is in `told` too."""
        self.world.fence += 1
        begin = len(self.told)
        async with aclosing(self.tell(text, query_id=query_id)) as events:
            async for event in events:
                self.told.append(event)
        return self.told[begin:]

    def tell(self, text: str, *, query_id: str) -> Any:
        agent = self.world.agent(model=self.model)
        return agent.ask(THREAD, query_id=query_id, text=text, user_id="u-9", fence=self.world.fence)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    async with wire() as a, wire() as b:
        endpoints = [ProviderEndpoint(name=name, base_url=one.url, models={"m": "m"}) for name, one in (("a", a), ("b", b))]
        policy = BreakerPolicy(failures_in_a_row=1000, min_calls=20)
        model = gateway_model(endpoints, model="m", tenants={}, meter=Unmetered(), timeout_s=5, concurrency=8, breaker=policy)
        b.answer(json_reply({"error": {"message": "no"}}, status=503))
        yield Desk(a, b, model)
        await model.aclose()


def one(told: list[Payload], kind: type[Any]) -> Any:
    (found,) = [event for event in told if isinstance(event, kind)]
    return found


def shown(told: list[Payload], *, attempt: int | None = None) -> str:
    deltas = [event for event in told if isinstance(event, AnswerDelta)]
    return "".join(event.text for event in deltas if attempt in {None, event.attempt})


# Case 24


async def test_case_24_i_a_stream_that_begins_without_choices_is_answered(desk: Desk) -> None:
    desk.a.answer(sse_reply([no_choices(), chunk({"role": "assistant", "content": "Hi"}), chunk({}, finish="stop")]))
    assert one(await desk.ask(), AnswerCompleted).text == "Hi"


@pytest.mark.parametrize(
    "reply",
    [
        json_reply(no_choices()),
        sse_reply([{**chunk({}), "choices": None}]),
        sse_reply([no_choices(), no_choices()]),
        Reply(b": ping\n\n: ping\n\ndata: [DONE]\n\n", content_type="text/event-stream"),
        sse_reply([chunk({"content": [], "role": "assistant"}), chunk({}, finish="stop")]),
        sse_reply([chunk({"content": ""}), chunk({}, finish="stop")]),
    ],
)
async def test_case_24_ii_iii_v_a_reply_without_choices_is_one_classified_error_and_no_answer(desk: Desk, reply: Reply) -> None:
    """Case 27's `[]` too. The lane retries it within its bounds (`test_provider_storms.py`)."""
    desk.a.answer(reply)
    desk.b.answer(reply)
    with pytest.raises(UnavailableError) as caught:
        await desk.ask()
    assert caught.value.reason_code == "provider_bad_reply"
    assert desk.told == [], "an empty text is never an answer"


async def test_case_24_iv_a_refusal_is_an_outcome_with_its_text_and_never_an_empty_answer(desk: Desk) -> None:
    desk.a.answer(sse_reply([chunk({"refusal": "I can't "}), chunk({"refusal": "do that."}), chunk({}, finish="stop")]))
    told = await desk.ask()
    failed = one(told, AnswerFailed)
    assert (failed.code, failed.text) == ("refused", "I can't do that.")
    assert [event for event in told if isinstance(event, AnswerCompleted)] == []
    assert desk.b.requests == [], "another provider is not asked until one says yes"


# Case 25


async def test_case_25_iv_a_context_that_is_too_long_is_trimmed_once_and_other_threads_go_on(desk: Desk) -> None:
    too_long = json_reply({"error": {"message": "x", "code": "context_length_exceeded", "type": None}}, status=400)
    desk.a.answer(stream("x" * 800))
    await desk.ask("y" * 800, query_id="q1")
    desk.a.answer(too_long, stream("Short."))
    assert one(await desk.ask("z", query_id="q2"), AnswerCompleted).text == "Short."
    _, *tries = [len(json.dumps(request["messages"])) for request in desk.a.requests]
    assert len(tries) == 2, "one call, then one shorter one"
    assert tries[1] < tries[0]
    desk.a.answer(too_long)
    assert one(await desk.ask("z", query_id="q3"), AnswerFailed).code == "too_long"
    assert desk.b.requests == [], "longer than one model's context is nobody's fault"


# Case 27


async def test_case_27_reasoning_is_told_to_nobody(desk: Desk) -> None:
    blocks = [{"type": "thinking", "thinking": "internal note"}, {"type": "text", "text": "Hello"}]
    desk.a.answer(sse_reply([chunk({"content": blocks}), chunk({}, finish="stop")]))
    told = await desk.ask()
    assert one(told, AnswerCompleted).text == shown(told) == "Hello"
    assert "internal note" not in str(told) + str(await desk.world.messages())


async def test_case_27_characters_cut_by_the_network_are_whole_in_every_delta(desk: Desk) -> None:
    text = "Grüße 👩\u200d👩\u200d👧 שלום"
    desk.a.answer(stream(text[:9], text[9:], piece=7))
    told = await desk.ask()
    assert one(told, AnswerCompleted).text == shown(told) == text
    for event in told:
        assert "\N{REPLACEMENT CHARACTER}" not in str(event)
        event.model_dump_json().encode()


@pytest.mark.parametrize(("usage", "counted"), [(None, (None, None)), (USAGE, (5, 2))])
async def test_case_27_usage_is_a_number_or_unknown_and_never_zero(
    desk: Desk, usage: dict[str, int] | None, counted: tuple[int | None, int | None]
) -> None:
    last = [no_choices(usage=usage)] if usage else []
    desk.a.answer(sse_reply([chunk({"content": "Hi"}), chunk({}, finish="stop"), *last]))
    completed = one(await desk.ask(), AnswerCompleted)
    assert (completed.input_tokens, completed.output_tokens) == counted


# Case 29


async def test_case_29_after_a_stream_that_broke_off_the_next_try_begins_anew_and_says_so(desk: Desk) -> None:
    """Never `Dear custDear customer, hi`: not in one attempt, and no fallback behind text that was shown."""
    desk.a.answer(sse_reply([chunk({"content": "Dear "}), chunk({"content": "cust"})], done=False, cut=True))
    desk.b.answer(stream(*WORDS))
    with pytest.raises(UnavailableError):
        await desk.ask()
    assert shown(desk.told)
    assert "Dear cust".startswith(shown(desk.told))
    assert desk.b.requests == []
    desk.a.answer(json_reply({"error": {"message": "no"}}, status=503))
    told = await desk.ask()
    restarted, completed = one(told, AnswerRestarted), one(told, AnswerCompleted)
    assert told.index(restarted) == 0
    assert completed.text == shown(desk.told, attempt=completed.attempt) == TEXT
    attempts = {event.attempt for event in desk.told if isinstance(event, AnswerDelta)}
    assert all(TEXT.startswith(shown(desk.told, attempt=attempt)) for attempt in attempts)
    assert len(desk.b.requests) == 1


async def test_case_29_an_empty_stream_is_replaced_by_the_fallback_once_without_a_word_of_it(desk: Desk) -> None:
    desk.a.answer(sse_reply([]))
    desk.b.answer(stream(*WORDS))
    told = await desk.ask()
    assert one(told, AnswerCompleted).text == shown(told) == TEXT
    assert not [event for event in told if isinstance(event, AnswerRestarted)]
    assert (len(desk.a.requests), len(desk.b.requests)) == (1, 1)


async def test_case_29_four_tokens_are_four_deltas(desk: Desk) -> None:
    desk.a.answer(stream(*WORDS))
    deltas = [event.text for event in await desk.ask() if isinstance(event, AnswerDelta)]
    assert len(deltas) == 4
    assert "".join(deltas) == TEXT


async def test_case_29_the_first_token_is_told_while_the_others_are_still_to_come(desk: Desk) -> None:
    desk.a.answer(sse_reply([chunk({"content": "Dear "}), chunk({"content": "customer, "})], done=False, stall=True))
    desk.world.fence += 1
    async with aclosing(desk.tell("hello", query_id="q1")) as events:
        with anyio.fail_after(5):
            first = await anext(events)
    assert isinstance(first, AnswerDelta)
    assert TEXT.startswith(first.text)
