"""What is published again costs no embedding that the index has: counted by the model server, over real HTTP, with a real index."""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

import httpx
import pytest
from redis.asyncio import Redis

from flows.ports import ArticleIndex
from infra.models.embeddings import ProviderEmbedder
from infra.models.guarded import GuardedEmbedder
from infra.redis.keys import Keys
from infra.redis.search import RedisArticleIndex
from tests.infra.models.served import serving
from tests.workers.desk import event
from topics.errors import ConfigError
from topics.events import ArticlePublished, ArticleRetired
from workers.ingestion import handle_article

SECTIONS = {f"Step {number}": " ".join(f"word{number} of{at}" for at in range(40)) for number in range(6)}


@pytest.fixture(scope="module")
def server_url() -> Iterator[str]:
    with serving() as url:
        yield url


@pytest.fixture
async def index(redis_client: Redis, redis_keys: Keys) -> AsyncIterator[RedisArticleIndex]:
    index = RedisArticleIndex(redis_client, redis_keys)
    await index.prepare()
    yield index
    await redis_client.execute_command("FT.DROPINDEX", redis_keys.article_index(), "DD")


def article(revision: int = 1, **changed: str) -> ArticlePublished:
    body = "\n".join(f"# {name}\n{text}" for name, text in (SECTIONS | changed).items())
    return ArticlePublished(article_id="a1", title="Refunds", body=body, revision=revision)


class Publishing:
    """Articles through the worker's handler; how many texts the model server embedded for each."""

    def __init__(self, url: str, index: ArticleIndex) -> None:
        self._url = url
        self._index = index

    async def __call__(
        self,
        payload: ArticlePublished | ArticleRetired,
        *,
        tenant: str = "acme",
        model: str = "one",
        index: ArticleIndex | None = None,
    ) -> int:
        before = await self._embedded()
        embedder = self._embedder(model)
        try:
            async for _ in handle_article(event("e", payload, tenant=tenant), embedder=embedder, index=index or self._index):
                pass
        finally:
            await embedder.aclose()
        return await self._embedded() - before

    async def vectors(self, texts: Iterable[str]) -> Sequence[Sequence[float]]:
        """What the model makes of texts."""
        embedder = self._embedder("one")
        try:
            return await embedder.embed(list(texts), tenant="acme")
        finally:
            await embedder.aclose()

    def _embedder(self, model: str) -> GuardedEmbedder:
        return GuardedEmbedder(
            ProviderEmbedder(base_url=f"{self._url}/v1", api_key="any", model=model, timeout_s=30, dimensions=384)
        )

    async def _embedded(self) -> int:
        async with httpx.AsyncClient(base_url=self._url) as client:
            journal = (await client.get("/control/requests")).json()
        asked = [entry for entry in journal["requests"] if entry["path"] == "/v1/embeddings"]
        assert {entry["status"] for entry in asked} <= {200}
        return sum(entry["inputs"] for entry in asked)


@pytest.fixture
def publish(server_url: str, index: RedisArticleIndex) -> Publishing:
    return Publishing(server_url, index)


async def test_an_article_that_is_published_again_is_not_embedded_again(publish: Publishing) -> None:
    passages = await publish(article())
    assert passages == len(SECTIONS)
    assert await publish(article()) == 0, "the record was delivered twice"
    assert await publish(article(revision=2)) == 0, "a revision changed nothing"
    assert await publish(article(), tenant="globex") == passages, "another tenant's vectors are its own"


async def test_of_an_article_of_which_a_section_changed_only_that_one_is_embedded(
    publish: Publishing, index: RedisArticleIndex
) -> None:
    await publish(article())
    changed = article(revision=2, **{"Step 3": SECTIONS["Step 3"].replace("word3", "word9")})
    assert await publish(changed) == 1
    assert await publish(changed) == 0
    assert await publish(article(revision=1)) == 0, "an older revision that comes late changes nothing, and costs nothing"
    stored = await index.embedded(tenant="acme", article_id="a1", space="one/384")
    fresh = await publish.vectors(f"{path}\n{text}" for path, text in stored)
    for ours, made in zip(stored.values(), fresh, strict=True):
        assert sum(one * other for one, other in zip(ours, made, strict=True)) > 0.97, "each passage has its own vector"


async def test_an_article_that_was_retired_is_embedded_when_it_returns(publish: Publishing) -> None:
    passages = await publish(article())
    assert await publish(ArticleRetired(article_id="a1")) == 0
    assert await publish(article()) == passages


async def test_another_model_s_vectors_are_made_anew(publish: Publishing) -> None:
    passages = await publish(article())
    assert await publish(article(), model="two") == passages
    assert await publish(article(), model="two") == 0


async def test_vectors_of_another_length_need_an_index_of_their_own_where_all_is_embedded(
    publish: Publishing, redis_client: Redis, redis_keys: Keys
) -> None:
    passages = await publish(article())
    with pytest.raises(ConfigError, match="use a new prefix"):
        await RedisArticleIndex(redis_client, redis_keys, dimensions=256).prepare()
    fresh = Keys(f"{redis_keys.prefix}-other")
    other = RedisArticleIndex(redis_client, fresh)
    await other.prepare()
    try:
        assert await publish(article(), index=other) == passages
        assert await publish(article()) == 0, "the first index is as it was"
    finally:
        await redis_client.execute_command("FT.DROPINDEX", fresh.article_index(), "DD")
