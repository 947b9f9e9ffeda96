"""Ordered providers behind one model: who is asked, when the next one is, and what it means when none is left."""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from langchain_core.messages import AIMessageChunk, HumanMessage
from langchain_core.runnables import RunnableLambda
from pydantic import SecretStr

from infra.models.breaker import BreakerPolicy
from infra.models.gateway import GatewayChatModel, estimated_tokens, gateway_model
from infra.models.metering import OURS, Usage
from infra.models.routing import ProviderEndpoint, TenantChoice
from tests.fakes.clock import FakeClock
from tests.fakes.meter import Ledger
from tests.fakes.wire import Reply, Wire, json_reply, sse_reply, wire
from topics.errors import (
    BudgetExceededError,
    OutageError,
    RateLimitedError,
    RejectedError,
    SluiceError,
    TimedOutError,
    UnavailableError,
)

USAGE = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
POLICY = BreakerPolicy(failures_in_a_row=3, open_s=5.0, max_open_s=30.0)
ACME: Any = {"metadata": {"tenant": "acme", "thread": "t-1", "query": "q-1"}}


@dataclass
class Two:
    """Providers a and b, and the model in front of them."""

    a: Wire
    b: Wire
    meter: Ledger
    model: GatewayChatModel
    clock: FakeClock

    @property
    def asked(self) -> tuple[int, int]:
        return len(self.a.requests), len(self.b.requests)


def gateway(a: Wire, b: Wire, meter: Ledger, **changed: Any) -> GatewayChatModel:
    endpoints = [
        ProviderEndpoint(name="a", base_url=a.url, api_key=SecretStr("key-a"), models={"standard": "a-1", "large": "a-2"}),
        ProviderEndpoint(name="b", base_url=b.url, api_key=SecretStr("key-b"), models={"standard": "b-1"}),
    ]
    options: dict[str, Any] = {"model": "standard", "tenants": {}, "timeout_s": 5, "concurrency": 8, "breaker": POLICY}
    clock = changed.pop("clock", FakeClock())
    model = gateway_model(endpoints[: changed.pop("providers", 2)], meter=meter, **{**options, **changed})
    for door in model.doors:
        door.clock = clock
    return model


@pytest.fixture
async def two() -> AsyncIterator[Two]:
    async with wire() as a, wire() as b:
        a.answer(stream("from a"))
        b.answer(stream("from b"))
        meter, clock = Ledger(), FakeClock()
        model = gateway(a, b, meter, clock=clock)
        yield Two(a, b, meter, model, clock)
        await model.aclose()


def chunk(delta: dict[str, Any], *, finish: str | None = None) -> dict[str, Any]:
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}


def stream(*pieces: str) -> Reply:
    usage = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], "usage": USAGE}
    pieces_of = [chunk({"content": piece}) for piece in pieces]
    return sse_reply([chunk({"role": "assistant", "content": ""}), *pieces_of, chunk({}, finish="stop"), usage])


def cut_after(*pieces: str) -> Reply:
    return sse_reply([chunk({"content": piece}) for piece in pieces], done=False, cut=True)


def whole(text: str) -> Reply:
    choices = [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": choices, "usage": USAGE}
    return json_reply(body)


def failure(status: int, *, code: str | None = None, **headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return json_reply({"error": {"message": "no", "code": code, "type": None}}, status=status, headers=named)


async def answer(model: Any, config: Any = ACME) -> AIMessageChunk:
    pieces = [piece async for piece in model.astream("hello", config)]
    return pieces[0] + pieces[1:]


async def text_of(model: Any) -> str:
    return (await answer(model)).text


async def error_of(model: Any) -> SluiceError:
    with pytest.raises(SluiceError) as caught:
        await answer(model)
    return caught.value


# Falling back


@pytest.mark.parametrize(
    "reply",
    [
        failure(503),
        failure(500),
        failure(401),
        failure(404, code="model_not_found"),
        failure(429, code="insufficient_quota"),
        failure(429, code="rate_limit_exceeded", retry_after="3600"),
        Reply(b"<html>proxy</html>", content_type="text/html"),
        sse_reply([]),
        sse_reply([chunk({"role": "assistant", "content": ""}), chunk({}, finish="stop")]),
        sse_reply([chunk({"role": "assistant", "content": ""})], done=False, cut=True),
    ],
)
async def test_a_provider_that_cannot_begin_is_replaced_once(two: Two, reply: Reply) -> None:
    """Case 29: an empty stream is a failure by rule, and the fallback is called once. A silent beginning shows nothing."""
    two.a.answer(reply)
    said = await answer(two.model)
    assert (said.text, said.response_metadata["served_by"]) == ("from b", "b")
    assert two.asked == (1, 1)


async def test_a_provider_that_is_silent_is_replaced(two: Two) -> None:
    two.a.answer(Reply(b"", cut=True, stall=True))
    impatient = gateway(two.a, two.b, two.meter, timeout_s=0.2)
    assert await text_of(impatient) == "from b"
    await impatient.aclose()


@pytest.mark.parametrize(
    ("status", "code", "reason"),
    [(400, "context_length_exceeded", "context_too_long"), (400, None, "provider_refused_request")],
)
async def test_a_refused_request_is_refused_and_no_other_provider_is_bothered(
    two: Two, status: int, code: str | None, reason: str
) -> None:
    """Case 25 (iv): one call."""
    two.a.answer(failure(status, code=code))
    error = await error_of(two.model)
    assert (type(error), error.reason_code) == (RejectedError, reason)
    assert two.asked == (1, 0)


async def test_a_refusal_of_the_model_is_an_answer_and_not_a_failure(two: Two) -> None:
    two.a.answer(sse_reply([chunk({"refusal": "No."}), chunk({}, finish="stop")]))
    assert (await answer(two.model)).additional_kwargs["refusal"] == "No."
    assert two.asked == (1, 0)


async def test_once_text_was_shown_no_other_provider_begins_behind_it(two: Two) -> None:
    """Case 29: what was seen is `Dear cust` and an error, never `Dear custDear customer, hi`."""
    two.a.answer(cut_after("Dear ", "cust"))
    two.b.answer(stream("Dear customer, hi"))
    seen: list[str] = []

    async def read() -> None:
        async with aclosing(two.model.astream("hello", ACME)) as pieces:
            async for piece in pieces:
                seen.append(piece.text)  # noqa: PERF401 -- a comprehension would lose the pieces with the error

    with pytest.raises(UnavailableError):
        await read()
    assert "".join(seen) == "Dear cust"
    assert two.asked == (1, 0)


async def test_each_token_is_shown_when_it_comes(two: Two) -> None:
    """Case 29: through the gateway and a generator step, a chunk each, the first long before the last one."""
    two.a.answer(sse_reply([chunk({"content": "one "})], done=False, stall=True))
    async with aclosing(two.model.astream("hello", ACME)) as pieces:
        with anyio.fail_after(2):
            assert (await anext(pieces)).text == "one "


@pytest.mark.parametrize("method", ["ainvoke", "structured", "tools"])
async def test_every_way_to_ask_falls_back(two: Two, method: str) -> None:
    two.a.answer(failure(503))
    two.b.answer(whole('{"n": 1}'))
    schema = {"title": "x", "description": "x", "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    if method == "structured":
        asked = two.model.with_structured_output(schema, method="json_schema", strict=True, include_raw=True)
        found = await asked.ainvoke("hello", ACME)
        assert (found["parsed"], found["raw"].response_metadata["served_by"]) == ({"n": 1}, "b")
    elif method == "tools":
        tool = {"type": "function", "function": {"name": "refund", "parameters": {"type": "object", "properties": {}}}}
        two.b.answer(stream("from b"))
        assert await text_of(two.model.bind_tools([tool])) == "from b"
        assert [request["tools"][0]["function"]["name"] for request in two.b.requests] == ["refund"]
    else:
        assert (await two.model.ainvoke("hello", ACME)).text == '{"n": 1}'
    assert two.asked == (1, 1)


# Whose model


async def test_each_provider_is_asked_for_its_own_name_of_the_model(two: Two) -> None:
    two.a.answer(failure(503))
    await answer(two.model)
    assert [request["model"] for request in (*two.a.requests, *two.b.requests)] == ["a-1", "b-1"]


async def test_a_tenant_has_its_own_model_and_no_other_provider_than_its_own(two: Two) -> None:
    chosen = gateway(two.a, two.b, two.meter, tenants={"acme": TenantChoice(model="large")})
    assert await text_of(chosen) == "from a"
    two.a.answer(failure(503))
    assert type(await error_of(chosen)) is UnavailableError
    assert [request["model"] for request in two.a.requests] == ["a-2", "a-2"]
    assert two.asked == (2, 0)
    await chosen.aclose()


async def test_a_call_chooses_its_model_by_configurable_through_a_chain(two: Two) -> None:
    chain = RunnableLambda(lambda text: [HumanMessage(str(text))]) | two.model
    await answer(chain, {**ACME, "configurable": {"model": "large"}})
    assert two.a.requests[0]["model"] == "a-2"
    with pytest.raises(RejectedError, match="no provider of this tenant"):
        await answer(chain, {**ACME, "configurable": {"model": "huge"}})


@pytest.mark.parametrize("providers", [1, 2])
async def test_a_model_that_only_one_tenant_chose_and_nobody_knows_is_no_outage_for_the_others(two: Two, providers: int) -> None:
    """However often the tenant asks for it, and whether or not somebody else could answer the others."""
    chosen = gateway(two.a, two.b, two.meter, providers=providers, tenants={"acme": TenantChoice(model="large")})
    two.a.answer(failure(404, code="model_not_found"))
    for _ in range(3 * POLICY.failures_in_a_row):
        assert type(await error_of(chosen)) is UnavailableError
    assert not chosen.doors[0].is_out
    assert chosen.doors[0].calls == {"rejected": 3 * POLICY.failures_in_a_row}
    two.a.answer(stream("from a"))
    assert (await answer(chosen, {"metadata": {"tenant": "globex"}})).text == "from a"
    await chosen.aclose()


async def test_a_model_that_only_one_tenant_chose_hides_no_outage_either(two: Two) -> None:
    """A provider that knows no such model may fail everybody else all the same."""
    chosen = gateway(two.a, two.b, two.meter, tenants={"acme": TenantChoice(model="large")})
    for _ in range(POLICY.failures_in_a_row):
        two.a.answer(failure(503))
        assert (await answer(chosen, {"metadata": {"tenant": "globex"}})).text == "from b"
        two.a.answer(failure(404, code="model_not_found"))
        await error_of(chosen)
    assert chosen.doors[0].is_out
    await chosen.aclose()


# The breaker


async def test_a_provider_that_is_out_is_skipped_then_tried_with_a_call_of_ours_then_used_again(two: Two) -> None:
    two.a.answer(failure(503))
    for _ in range(10):
        assert await text_of(two.model) == "from b"
    assert two.asked == (3, 10), "three failures in a row, then none is spent on it"
    two.clock.advance(5.1)
    assert await text_of(two.model) == "from b"
    trial = two.a.requests[-1]
    assert (len(two.a.requests), trial["messages"][0]["content"]) == (4, "Say yes."), "no record's own text"
    assert trial["max_completion_tokens"] == 16
    two.a.answer(whole("yes"), stream("from a"))
    two.clock.advance(5.1)
    assert await text_of(two.model) == "from b", "twice as long after a trial that failed"
    two.clock.advance(5.1)
    assert await text_of(two.model) == "from a"
    assert not two.model.doors[0].is_out


async def a_is_out(two: Two) -> None:
    """Until a trial, which is due."""
    two.a.answer(failure(401))
    await answer(two.model)
    two.clock.advance(5.1)
    two.meter.admitted.clear()
    two.meter.settled.clear()


@pytest.mark.parametrize(("said", "used"), [(failure(503), Usage(0, 0)), (whole("yes"), Usage(5, 2))])
async def test_a_trial_counts_against_its_providers_limit_and_nobodys_budget(two: Two, said: Reply, used: Usage) -> None:
    await a_is_out(two)
    two.a.answer(said, stream("from a"))
    await answer(two.model)
    trial, own = two.meter.admitted
    assert (trial.provider, trial.model, trial.tenant, trial.run) == ("a", "a-1", OURS, "")
    assert trial.tokens == estimated_tokens([HumanMessage("Say yes.")], {"max_completion_tokens": 16}) < 20
    assert own.tenant == "acme"
    assert two.meter.settled[0] == ("a", used)


async def test_a_trial_that_the_meter_does_not_let_is_not_made_and_the_next_caller_asks_again(two: Two) -> None:
    await a_is_out(two)
    two.meter.refusals[OURS] = RateLimitedError("used up", retry_after_s=30.0)
    two.a.answer(whole("yes"), stream("from a"))
    for _ in range(3):
        assert await text_of(two.model) == "from b"
    assert len(two.a.requests) == 1, "neither a trial nor a record's own call"
    two.meter.refusals.clear()
    assert await text_of(two.model) == "from a"


async def test_when_all_are_out_and_the_limit_lets_no_trial_the_record_waits_and_spends_nothing(two: Two) -> None:
    two.a.answer(failure(401))
    two.b.answer(failure(401))
    await error_of(two.model)
    two.clock.advance(5.1)
    two.meter.refusals[OURS] = RateLimitedError("used up", retry_after_s=30.0)
    error = await error_of(two.model)
    assert isinstance(error, RateLimitedError)
    assert error.retry_after_s == 30.0
    assert two.asked == (1, 1)


@pytest.mark.parametrize("kept", [failure(400), failure(429, code="rate_limit_exceeded"), whole("yes")])
async def test_a_trial_that_is_answered_in_any_way_shows_that_the_provider_is_there(two: Two, kept: Reply) -> None:
    two.a.answer(failure(401))
    await answer(two.model)
    two.clock.advance(5.1)
    two.a.answer(kept, stream("from a"))
    assert await text_of(two.model) == "from a"


async def test_one_caller_makes_the_trial_and_nobody_waits_for_it(two: Two) -> None:
    two.a.answer(failure(401))
    await answer(two.model)
    two.clock.advance(5.1)
    two.a.answer(Reply(b"", cut=True, stall=True))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer, two.model)
        with anyio.fail_after(4):
            while len(two.a.requests) < 2:
                await anyio.lowlevel.checkpoint()
            for _ in range(5):
                assert await text_of(two.model) == "from b"
        tasks.cancel_scope.cancel()
    assert len(two.a.requests) == 2
    two.a.answer(whole("yes"), stream("from a"))
    assert await text_of(two.model) == "from a", "a trial that was cancelled told nothing, and the next caller makes one"


async def test_a_bad_key_opens_at_once_and_says_why(two: Two) -> None:
    two.a.answer(failure(401))
    two.b.answer(failure(429, code="insufficient_quota"))
    assert isinstance(await error_of(two.model), OutageError)
    error = await error_of(two.model)
    assert isinstance(error, OutageError)
    assert error.reason_code == "provider_auth"
    assert two.asked == (1, 1), "the second call asked nobody"


async def test_when_all_are_out_it_is_an_outage_and_spends_nothing(two: Two) -> None:
    two.a.answer(failure(503))
    two.b.answer(failure(503))
    spent = [type(await error_of(two.model)) for _ in range(6)]
    assert spent == [UnavailableError] * 3 + [OutageError] * 3
    assert two.asked == (3, 3)


async def test_a_request_that_breaks_every_provider_spends_its_attempts_and_stops_nobody(two: Two) -> None:
    """Poison at the provider: trials of ours go well, so that the record ends in the dead letters and not in a pause for ever."""
    sick, well = failure(500), whole("yes")
    for provider in (two.a, two.b):
        provider.answer(sick)
    spent = 0
    with anyio.fail_after(10):
        while spent < 8:
            error = await error_of(two.model)
            spent += isinstance(error, UnavailableError)
            if isinstance(error, OutageError):
                for provider in (two.a, two.b):
                    provider.answer(well, sick)  # only the record is poison
                two.clock.advance(31)
    assert spent == 8


async def test_a_call_that_is_cancelled_says_nothing_about_its_provider(two: Two) -> None:
    two.a.answer(Reply(b"", cut=True, stall=True))
    for _ in range(5):
        with anyio.move_on_after(0.05):
            await answer(two.model)
    assert not two.model.doors[0].is_out
    assert two.meter.settled == [("a", None)] * 5, "what it used is unknown"


async def test_providers_of_one_tenant_that_are_out_are_no_outage_for_the_others(two: Two) -> None:
    chosen = gateway(two.a, two.b, two.meter, tenants={"acme": TenantChoice(providers=("a",))})
    two.a.answer(failure(401))
    for _ in range(2):
        error = await error_of(chosen)
        assert isinstance(error, RateLimitedError), "its lane waits, spends nothing, and intake goes on"
        assert error.retry_after_s is not None
        assert 1 <= error.retry_after_s <= 5
    assert len(two.a.requests) == 1
    assert (await answer(chosen, {"metadata": {"tenant": "globex"}})).text == "from b"
    await chosen.aclose()


# Limits


async def test_a_provider_that_limits_our_rate_is_asked_last_for_a_while_and_never_counted_out(two: Two) -> None:
    two.a.answer(failure(429, code="rate_limit_exceeded", retry_after="30"))
    for _ in range(5):
        assert await text_of(two.model) == "from b"
    assert two.asked == (1, 5)
    assert not two.model.doors[0].is_out


@pytest.mark.parametrize(
    ("a", "b", "wait_s"),
    [
        (failure(429, retry_after="3600"), failure(429, retry_after="7"), 7.0),
        (failure(429, retry_after="3600"), failure(429), 5.0),
        (failure(429, retry_after="3600"), failure(503), 5.0),
        (failure(429, retry_after="3600"), failure(401), POLICY.open_s),
    ],
)
async def test_when_one_limits_us_and_nobody_else_can_the_wait_is_the_shortest_and_spends_nothing(
    two: Two, a: Reply, b: Reply, wait_s: float
) -> None:
    two.a.answer(a)
    two.b.answer(b)
    error = await error_of(two.model)
    assert isinstance(error, RateLimitedError)
    assert error.retry_after_s == wait_s


async def test_the_meter_is_asked_before_and_told_after_each_call(two: Two) -> None:
    two.a.answer(failure(503))
    await answer(two.model)
    calls = [(call.provider, call.model, call.tenant, call.run) for call in two.meter.admitted]
    assert calls == [("a", "a-1", "acme", "t-1\nq-1"), ("b", "b-1", "acme", "t-1\nq-1")]
    assert two.meter.settled == [("a", Usage(0, 0)), ("b", Usage(5, 2))]
    assert two.meter.admitted[0].tokens == estimated_tokens([HumanMessage("hello")], {}) == 1001


@pytest.mark.parametrize(
    ("reply", "used"),
    [
        (failure(429), Usage(0, 0)),
        (failure(400), Usage(0, 0)),
        (sse_reply([]), None),
        (cut_after("Dear "), None),
        (sse_reply([chunk({"content": "Hi"}), chunk({}, finish="stop")]), None),
    ],
)
async def test_what_a_call_used_is_known_or_unknown_and_never_taken_for_nothing(two: Two, reply: Reply, used: Usage | None) -> None:
    """Case 27: usage is a number or unknown. Only a call that was turned away has certainly cost nothing."""
    two.a.answer(reply)
    two.b.answer(failure(401))
    with anyio.move_on_after(5):
        with suppress(SluiceError):
            await answer(two.model)
    assert two.meter.settled[0] == ("a", used)


async def test_a_share_that_is_used_up_at_one_provider_lets_the_next_one_answer(two: Two) -> None:
    two.meter.refusals["a"] = RateLimitedError("used up", retry_after_s=30.0)
    assert await text_of(two.model) == "from b"
    assert two.asked == (0, 1)
    assert not two.model.doors[0].is_resting, "another tenant's share is not used up"
    assert two.meter.settled == [("b", Usage(5, 2))], "what was not admitted is not settled"


async def test_a_budget_that_is_spent_is_spent_everywhere(two: Two) -> None:
    two.meter.refusals["a"] = BudgetExceededError()
    assert type(await error_of(two.model)) is BudgetExceededError
    assert two.asked == (0, 0)
    assert two.model.doors[0].calls == {"denied": 1}, "operators see it"


# Concurrency


async def test_the_cap_holds_over_nested_chains(two: Two) -> None:
    """Case 25 (v): four runs of a step of five at once, and never more than two calls; `max_concurrency` does not reach so deep."""
    peak = 0
    capped = gateway(two.a, two.b, two.meter, concurrency=2)

    async def fan_out(text: str) -> Sequence[str]:
        return [one.text for one in await capped.abatch([text] * 5)]

    async def watch() -> None:
        nonlocal peak
        while True:
            peak = max(peak, two.a.connections)
            await anyio.lowlevel.checkpoint()

    two.a.answer(whole("yes"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        found = await RunnableLambda(fan_out).abatch(["x"] * 4, {"max_concurrency": 2})
        tasks.cancel_scope.cancel()
    assert found == [["yes"] * 5] * 4
    assert peak == 2
    await capped.aclose()


async def test_a_slot_comes_back_from_every_way_a_call_can_end(two: Two) -> None:
    alone = gateway(two.a, two.b, two.meter, concurrency=1)
    two.b.answer(failure(503))
    for reply in (failure(400), failure(503), cut_after("Dear ")):
        two.a.answer(reply)
        await error_of(alone)
    two.a.answer(sse_reply([chunk({"content": "one "})], done=False, stall=True))
    async with aclosing(alone.astream("hello", ACME)) as pieces:
        await anext(pieces)
    two.a.answer(stream("from a"))
    with anyio.fail_after(2):
        assert await text_of(alone) == "from a"
    await alone.aclose()


async def test_a_timeout_of_all_is_a_timeout(two: Two) -> None:
    for one in (two.a, two.b):
        one.answer(Reply(b"", cut=True, stall=True))
    impatient = gateway(two.a, two.b, two.meter, timeout_s=0.1)
    assert type(await error_of(impatient)) is TimedOutError
    await impatient.aclose()
