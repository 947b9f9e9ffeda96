"""Vectors over the wire."""

import math
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import anyio
import pytest

from infra.models.embeddings import BATCH, WAITED_FOR, Embedded, ProviderEmbedder
from tests.fakes.wire import Reply, Wire, json_reply, wire
from topics.errors import ConfigError, OutageError, SluiceError, TimedOutError, UnavailableError


@pytest.fixture
async def server() -> AsyncIterator[Wire]:
    async with wire() as server:
        yield server


@pytest.fixture
async def embedder(server: Wire) -> AsyncIterator[ProviderEmbedder]:
    embedder = ProviderEmbedder(base_url=server.url, api_key="key", model="e", timeout_s=1, dimensions=2)
    yield embedder
    await embedder.aclose()


def vectors(*found: list[float]) -> Reply:
    rows = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(found)]
    return json_reply({"object": "list", "data": rows, "model": "e", "usage": {"prompt_tokens": 1, "total_tokens": 1}})


async def test_vectors_keep_the_order_of_texts_and_have_unit_length(server: Wire, embedder: ProviderEmbedder) -> None:
    server.answer(vectors([3.0, 4.0], [0.0, -2.0]))
    found = await embedder.embed(["a", "b"])
    assert found == Embedded([[0.6, 0.8], [0.0, -1.0]], input_tokens=1)
    assert all(math.isclose(math.hypot(*vector), 1.0) for vector in found.vectors)
    assert server.requests == [{"input": ["a", "b"], "model": "e", "encoding_format": "float"}]


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": 0, "total_tokens": 0}, {"prompt_tokens": None}, "missing"])
async def test_usage_that_nobody_counted_is_unknown_and_never_nothing(server: Wire, embedder: ProviderEmbedder, usage: Any) -> None:
    rows = [{"object": "embedding", "index": 0, "embedding": [1.0, 0.0]}]
    body = {"object": "list", "data": rows, "model": "e", "usage": usage}
    server.answer(json_reply({name: value for name, value in body.items() if value != "missing"}))
    assert (await embedder.embed(["a"])).input_tokens is None


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (json_reply({"error": {"message": "x"}}, status=401), OutageError),
        (json_reply({"error": {"message": "x"}}, status=503), UnavailableError),
        (Reply(b"<html>", content_type="text/html"), UnavailableError),
        (json_reply({"data": None}), UnavailableError),
        (vectors([1.0, 0.0]), UnavailableError),
        (vectors([1.0, 0.0], [0.0, 0.0]), UnavailableError),
        (vectors([1.0, 0.0], [float("nan"), 0.0]), UnavailableError),
        (vectors([1.0], [1.0]), ConfigError),
        (Reply(b"", cut=True, stall=True), TimedOutError),
    ],
)
async def test_a_failure_has_a_known_fate(
    server: Wire, embedder: ProviderEmbedder, reply: Reply, expected: type[SluiceError]
) -> None:
    server.answer(reply)
    with pytest.raises(SluiceError) as caught:
        await embedder.embed(["a", "b"])
    assert type(caught.value) is expected


async def test_a_request_has_its_time_as_a_whole(server: Wire, embedder: ProviderEmbedder) -> None:
    """A server that sends a byte now and then lets no single read time out."""
    reply = vectors([1.0, 0.0])
    server.answer(replace(reply, piece=1, pause_s=5 / len(reply.body)))
    with pytest.raises(TimedOutError):
        await embedder.embed(["a"])


@pytest.mark.parametrize(("texts", "times"), [(1, 1), (WAITED_FOR, 1), (WAITED_FOR + 1, 2), (BATCH, 2)])
async def test_passages_of_an_article_have_more_time_than_what_somebody_waits_for(server: Wire, texts: int, times: int) -> None:
    server.answer(Reply(b"", cut=True, stall=True))
    embedder = ProviderEmbedder(base_url=server.url, api_key="key", model="e", timeout_s=0.2, dimensions=2)
    begun_s = anyio.current_time()
    with pytest.raises(TimedOutError):
        await embedder.embed(["a"] * texts)
    assert 0.2 * times <= anyio.current_time() - begun_s
    await embedder.aclose()
