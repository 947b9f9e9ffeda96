"""The embedder behind its breaker."""

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from infra.models.breaker import BreakerPolicy
from infra.models.embeddings import BATCH, ProviderEmbedder
from infra.models.guarded import GuardedEmbedder
from infra.models.metering import OURS, Call, Usage
from tests.fakes.clock import FakeClock
from tests.fakes.meter import Ledger
from tests.fakes.wire import Reply, Wire, json_reply, wire
from topics.errors import BudgetExceededError, ConfigError, OutageError, RateLimitedError, SluiceError, UnavailableError

USAGE = {"prompt_tokens": 7, "total_tokens": 7}
POLICY = BreakerPolicy(failures_in_a_row=3, open_s=5.0, max_open_s=30.0)


@pytest.fixture
async def server() -> AsyncIterator[Wire]:
    async with wire() as server:
        yield server


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def meter() -> Ledger:
    return Ledger()


@pytest.fixture
async def embedder(server: Wire, clock: FakeClock, meter: Ledger) -> AsyncIterator[GuardedEmbedder]:
    provider = ProviderEmbedder(base_url=server.url, api_key="key", model="e", timeout_s=5, dimensions=2)
    embedder = GuardedEmbedder(provider, provider="p", meter=meter, breaker=POLICY)
    embedder.door.clock = clock
    yield embedder
    await embedder.aclose()


def vector(*floats: float, texts: int = 1, usage: Any = USAGE) -> Reply:
    rows = [{"object": "embedding", "index": index, "embedding": floats} for index in range(texts)]
    return json_reply({"object": "list", "data": rows, "model": "e", "usage": usage})


def failure(status: int) -> Reply:
    return json_reply({"error": {"message": "no"}}, status=status)


async def test_an_outage_of_embeddings_spends_few_attempts_pauses_no_intake_and_ends_by_a_trial_of_ours(
    server: Wire, clock: FakeClock, embedder: GuardedEmbedder
) -> None:
    """P1: however long it lasts, no article and no question runs out of attempts."""
    server.answer(failure(503))
    for _ in range(3):
        with pytest.raises(UnavailableError):
            await embedder.embed(["a"], tenant="acme")
    for wait_s in (5.0, 10.0, 20.0, 30.0):
        for _ in range(20):
            with pytest.raises(RateLimitedError) as waits:
                await embedder.embed(["a"], tenant="acme")
            assert waits.value.retry_after_s == wait_s
        clock.advance(wait_s)
        with pytest.raises(RateLimitedError):
            await embedder.embed(["a"], tenant="acme")
    assert [request["input"] for request in server.requests] == [["a"]] * 3 + [["yes"]] * 4
    clock.advance(30.0)
    server.answer(vector(0.0, 2.0))
    assert await embedder.embed(["a"], tenant="acme") == [[0.0, 1.0]]


async def test_a_bad_key_makes_them_wait_from_the_first_call_on(server: Wire, embedder: GuardedEmbedder) -> None:
    server.answer(failure(401))
    for _ in range(3):
        with pytest.raises(RateLimitedError, match="refuses our key"):
            await embedder.embed(["a"], tenant="acme")
    assert len(server.requests) == 1


async def test_a_wrong_length_stops_the_worker_and_says_nothing_about_the_endpoint(server: Wire, embedder: GuardedEmbedder) -> None:
    server.answer(vector(1.0))
    for _ in range(5):
        with pytest.raises(ConfigError):
            await embedder.embed(["a"], tenant="acme")
    assert not embedder.door.is_out
    assert await embedder.embed([], tenant="acme") == []


# The meter


async def test_each_request_is_admitted_for_its_tenant_and_settled_by_what_the_provider_counted(
    server: Wire, embedder: GuardedEmbedder, meter: Ledger
) -> None:
    """Many texts travel in bounded batches, and each of them is a request to the provider."""
    server.answer(vector(3.0, 4.0, texts=BATCH), vector(0.0, 1.0, texts=3))
    found = await embedder.embed(["text"] * (BATCH + 3), tenant="acme")
    assert (len(found), found[BATCH - 1], found[BATCH]) == (BATCH + 3, [0.6, 0.8], [0.0, 1.0])
    assert [len(request["input"]) for request in server.requests] == [BATCH, 3]
    assert meter.admitted == [Call("p", "e", "acme", 2 * BATCH), Call("p", "e", "acme", 2 * 3)]
    assert meter.settled == [("p", Usage(7, 0))] * 2


@pytest.mark.parametrize(
    ("reply", "used"),
    [
        (failure(503), Usage(0, 0)),
        (failure(429), Usage(0, 0)),
        (vector(1.0, 0.0, usage=None), None),
        (Reply(b"<html>", content_type="text/html"), None),
    ],
)
async def test_what_nobody_counted_stays_estimated_and_only_what_was_turned_away_is_nothing(
    server: Wire, embedder: GuardedEmbedder, meter: Ledger, reply: Reply, used: Usage | None
) -> None:
    server.answer(reply)
    with suppress(SluiceError):
        await embedder.embed(["a"], tenant="acme")
    assert meter.settled == [("p", used)]


@pytest.mark.parametrize(
    ("no", "told"),
    [
        (BudgetExceededError(), BudgetExceededError),
        (RateLimitedError("used up", retry_after_s=9.0), RateLimitedError),
        (OutageError("redis is gone"), RateLimitedError),
    ],
)
async def test_what_the_meter_does_not_let_is_not_asked_and_says_nothing_about_the_endpoint(
    server: Wire, embedder: GuardedEmbedder, meter: Ledger, no: SluiceError, told: type[SluiceError]
) -> None:
    meter.refusals["acme"] = no
    for _ in range(5):
        with pytest.raises(told):
            await embedder.embed(["a"], tenant="acme")
    assert (server.requests, meter.settled) == ([], [])
    assert not embedder.door.is_out
    assert not embedder.door.is_resting


async def test_a_trial_counts_against_the_limit_and_nobodys_budget(
    server: Wire, clock: FakeClock, embedder: GuardedEmbedder, meter: Ledger
) -> None:
    server.answer(failure(401), vector(1.0, 0.0))
    with pytest.raises(RateLimitedError):
        await embedder.embed(["a"], tenant="acme")
    clock.advance(5.0)
    await embedder.embed(["a"], tenant="acme")
    assert [call.tenant for call in meter.admitted] == ["acme", OURS, "acme"]
    assert meter.settled == [("p", Usage(0, 0)), ("p", Usage(7, 0)), ("p", Usage(7, 0))]
