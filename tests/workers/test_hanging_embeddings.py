"""An endpoint of embeddings that takes a request and says nothing, and those that wait for a vector."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import anyio
import pytest

from flows import examples
from flows.agent import search
from flows.examples import NearestExamples
from flows.retrieval import HybridRetriever
from infra.models.breaker import BreakerPolicy
from infra.models.embeddings import WAITED_FOR
from infra.settings import Settings, load_settings
from tests.fakes.article_index import MemoryIndex
from tests.fakes.examples import MemoryExamples
from tests.fakes.wire import Reply, Wire, wire
from topics.errors import RateLimitedError, SluiceError, TimedOutError
from topics.events import TicketOpened
from topics.example import Example
from workers.models import Models, build_models

FAILURES = BreakerPolicy().failures_in_a_row
DEFAULT_S = Settings.model_fields["embedding_timeout_s"].default


@pytest.fixture
async def hanging() -> AsyncIterator[tuple[Wire, Models]]:
    async with wire() as server, AsyncExitStack() as stack:
        server.answer(Reply(b"", cut=True, stall=True))
        settings = load_settings(model_base_url=server.url, embedding_dimensions=2, embedding_timeout_s=0.2, breaker_open_s=60)
        yield server, build_models(settings, stack=stack)


async def test_a_search_spends_few_attempts_on_an_endpoint_that_hangs_and_then_waits(hanging: tuple[Wire, Models]):
    """P1, P7: a question that went on asking would become a dead letter `timed_out`."""
    server, models = hanging
    retriever = HybridRetriever(branches=MemoryIndex(), embedder=models.embedder)
    found = list[type[Exception]]()
    for _ in range(FAILURES + 5):
        with pytest.raises((SluiceError, TimeoutError)) as ended, anyio.fail_after(search.TOOL.timeout_s):
            await retriever.search(tenant="acme", query="refund", limit=3)
        found.append(ended.type)
    assert found == [TimedOutError] * FAILURES + [RateLimitedError] * 5
    assert len(server.requests) == FAILURES < Settings.model_fields["max_failures"].default


async def test_batches_of_tickets_do_not_wait_each_for_an_endpoint_that_hangs(hanging: tuple[Wire, Models]):
    server, models = hanging
    store, losses = MemoryExamples(), list[str]()
    example = Example("acme", "e1", "", "my card", "lost_card", "high", needs_person=True, summary="Card.")
    await store.add("acme", [example], [[1.0, 0.0]])
    nearest = NearestExamples(store, models.embedder, on_loss=lambda _, error: losses.append(error.reason_code))
    batch = [(f"acme/T-{number}", TicketOpened(ticket_id=f"T-{number}", body="my card")) for number in range(WAITED_FOR)]
    for _ in range(FAILURES + 5):
        assert await nearest.of(batch) == {}
    assert losses == ["timed_out"] * FAILURES + ["rate_limited"] * 5
    assert len(server.requests) == FAILURES


def test_the_time_that_ships_is_below_that_of_whoever_waits():
    assert min(search.TOOL.timeout_s, examples.WAIT_S) > DEFAULT_S
    assert Settings.model_fields["batch_size"].default <= WAITED_FOR
