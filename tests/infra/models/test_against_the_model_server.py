"""The chat model, the embedder, triage and retrieval against the product's own model server, over real HTTP."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from flows.ingest import index_article
from flows.intents import BANKING77
from flows.retrieval import HybridRetriever
from flows.triage import Outcome, build_triage
from infra.local.data import datasets
from infra.models.embeddings import ProviderEmbedder
from infra.models.guarded import GuardedEmbedder
from infra.models.providers import ProviderChatModel, chat_model
from infra.redis.keys import Keys
from infra.redis.search import RedisArticleIndex
from tests.infra.models.served import serving
from topics.errors import OutageError, RateLimitedError, SluiceError, TimedOutError, UnavailableError
from topics.events import ArticlePublished, TicketOpened, TicketTriaged


@pytest.fixture(scope="module")
def server_url() -> Iterator[str]:
    with serving() as url:
        yield url


@pytest.fixture
async def control(server_url: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"{server_url}/control") as client:
        yield client
        (await client.post("/reset")).raise_for_status()


@pytest.fixture
async def model(server_url: str) -> AsyncIterator[ProviderChatModel]:
    model = chat_model(base_url=f"{server_url}/v1", api_key="any", model="demo", timeout_s=5)
    yield model
    await model.aclose()


@pytest.fixture
async def embedder(server_url: str) -> AsyncIterator[GuardedEmbedder]:
    provider = ProviderEmbedder(base_url=f"{server_url}/v1", api_key="any", model="demo", timeout_s=30, dimensions=384)
    embedder = GuardedEmbedder(provider)
    yield embedder
    await embedder.aclose()


async def test_an_answer_streams_as_it_is_whole_and_is_counted(model: ProviderChatModel) -> None:
    whole = await model.ainvoke("Where is my card?")
    pieces = [piece async for piece in model.astream("Where is my card?")]
    assert "".join(piece.text for piece in pieces) == whole.text != ""
    assert whole.usage_metadata is not None
    counted = [piece.usage_metadata for piece in pieces if piece.usage_metadata]
    assert [usage["output_tokens"] for usage in counted] == [whole.usage_metadata["output_tokens"]]


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ({"kind": "status", "status": 429, "retry_after_s": 7}, RateLimitedError),
        ({"kind": "status", "status": 429, "code": "insufficient_quota"}, OutageError),
        ({"kind": "status", "status": 503}, UnavailableError),
        ({"kind": "cut", "after_chunks": 1}, UnavailableError),
        ({"kind": "drop", "after_chunks": 1}, UnavailableError),
        ({"kind": "malformed", "after_chunks": 1}, UnavailableError),
        ({"kind": "error_event", "after_chunks": 1}, UnavailableError),
        ({"kind": "empty_choices"}, UnavailableError),
        ({"kind": "null_choices"}, UnavailableError),
    ],
)
async def test_a_scripted_fault_of_a_stream_has_its_fate(
    control: httpx.AsyncClient, model: ProviderChatModel, fault: dict[str, Any], expected: type[SluiceError]
) -> None:
    (await control.post("/faults", json=fault)).raise_for_status()
    with pytest.raises(SluiceError) as caught:
        _ = [piece async for piece in model.astream("Where is my card?")]
    assert type(caught.value) is expected
    if isinstance(caught.value, RateLimitedError):
        assert caught.value.retry_after_s == 7


async def test_a_stalled_stream_times_out(control: httpx.AsyncClient, server_url: str) -> None:
    (await control.post("/faults", json={"kind": "stall", "after_chunks": 1, "delay_s": 60})).raise_for_status()
    model = chat_model(base_url=f"{server_url}/v1", api_key="any", model="demo", timeout_s=0.3)
    with pytest.raises(TimedOutError):
        _ = [piece async for piece in model.astream("Where is my card?")]
    await model.aclose()


async def test_real_tickets_are_sorted_and_one_failure_stays_alone(control: httpx.AsyncClient, model: ProviderChatModel) -> None:
    tickets = datasets.tickets()[::6][:60]
    (await control.post("/faults", json={"kind": "status", "status": 503, "match": tickets[3].text})).raise_for_status()
    batch = [(f"bank/{ticket.ticket_id}", TicketOpened(ticket_id=ticket.ticket_id, body=ticket.text)) for ticket in tickets]
    sorting = build_triage(model, BANKING77, max_concurrency=8).triage(batch)
    found: dict[str, Outcome] = {key: outcome async for key, outcome in sorting}
    assert isinstance(found.pop(f"bank/{tickets[3].ticket_id}"), UnavailableError)
    right = sum(isinstance(hit := found.get(f"bank/{t.ticket_id}"), TicketTriaged) and hit.intent == t.intent for t in tickets)
    assert len(found) == len(tickets) - 1
    assert right >= 0.8 * len(found)


async def test_articles_are_found_by_meaning_and_strangers_find_nothing(
    redis_client: Redis, redis_keys: Keys, embedder: GuardedEmbedder
) -> None:
    index = RedisArticleIndex(redis_client, redis_keys)
    await index.prepare()
    questions = [question for question in datasets.questions() if question.article_ids][:12]
    wanted = {article_id for question in questions for article_id in question.article_ids}
    for article in datasets.articles():
        if article.article_id in wanted:
            event = ArticlePublished(article_id=article.article_id, title=article.title, body=article.text)
            assert await index_article(event, tenant=article.tenant, embedder=embedder, index=index) > 0
    retriever = HybridRetriever(branches=index, embedder=embedder)
    found = 0
    for question in questions:
        passages = await retriever.search(tenant=question.tenant, query=question.text, limit=5)
        found += any(passage.article_id in question.article_ids for passage in passages)
        assert {passage.tenant for passage in passages} <= {question.tenant}
        assert await retriever.search(tenant="stranger", query=question.text, limit=5) == []
    assert found >= 10
    assert await retriever.search(tenant=questions[0].tenant, query="who won the battle of hastings", limit=5) == []
    await redis_client.execute_command("FT.DROPINDEX", redis_keys.article_index(), "DD")
