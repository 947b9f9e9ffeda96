"""The embedder behind its breaker."""

from collections.abc import AsyncIterator

import pytest

from infra.models.breaker import BreakerPolicy
from infra.models.embeddings import ProviderEmbedder
from infra.models.guarded import GuardedEmbedder
from tests.fakes.clock import FakeClock
from tests.fakes.wire import Reply, Wire, json_reply, wire
from topics.errors import ConfigError, RateLimitedError, UnavailableError

POLICY = BreakerPolicy(failures_in_a_row=3, open_s=5.0, max_open_s=30.0)


@pytest.fixture
async def server() -> AsyncIterator[Wire]:
    async with wire() as server:
        yield server


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def embedder(server: Wire, clock: FakeClock) -> AsyncIterator[GuardedEmbedder]:
    provider = ProviderEmbedder(base_url=server.url, api_key="key", model="e", timeout_s=5, dimensions=2)
    embedder = GuardedEmbedder(provider, breaker=POLICY)
    embedder.door.clock = clock
    yield embedder
    await embedder.aclose()


def vector(*floats: float) -> Reply:
    rows = [{"object": "embedding", "index": 0, "embedding": floats}]
    return json_reply({"object": "list", "data": rows, "model": "e", "usage": {"prompt_tokens": 1, "total_tokens": 1}})


def failure(status: int) -> Reply:
    return json_reply({"error": {"message": "no"}}, status=status)


async def test_an_outage_of_embeddings_spends_few_attempts_pauses_no_intake_and_ends_by_a_trial_of_ours(
    server: Wire, clock: FakeClock, embedder: GuardedEmbedder
) -> None:
    """P1: however long it lasts, no article and no question runs out of attempts."""
    server.answer(failure(503))
    for _ in range(3):
        with pytest.raises(UnavailableError):
            await embedder.embed(["a"])
    for wait_s in (5.0, 10.0, 20.0, 30.0):
        for _ in range(20):
            with pytest.raises(RateLimitedError) as waits:
                await embedder.embed(["a"])
            assert waits.value.retry_after_s == wait_s
        clock.advance(wait_s)
        with pytest.raises(RateLimitedError):
            await embedder.embed(["a"])
    assert [request["input"] for request in server.requests] == [["a"]] * 3 + [["yes"]] * 4
    clock.advance(30.0)
    server.answer(vector(0.0, 2.0))
    assert await embedder.embed(["a"]) == [[0.0, 1.0]]


async def test_a_bad_key_makes_them_wait_from_the_first_call_on(server: Wire, embedder: GuardedEmbedder) -> None:
    server.answer(failure(401))
    for _ in range(3):
        with pytest.raises(RateLimitedError, match="refuses our key"):
            await embedder.embed(["a"])
    assert len(server.requests) == 1


async def test_a_wrong_length_stops_the_worker_and_says_nothing_about_the_endpoint(server: Wire, embedder: GuardedEmbedder) -> None:
    server.answer(vector(1.0))
    for _ in range(5):
        with pytest.raises(ConfigError):
            await embedder.embed(["a"])
    assert not embedder.door.is_out
    assert await embedder.embed([]) == []
