"""One behaviour of the article index when records come late: in memory, and in Redis."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest
from redis.asyncio import Redis

from flows.ingest import index_article, retire_article
from flows.retrieval import HybridRetriever
from infra.redis.keys import Keys
from infra.redis.search import RedisArticleIndex
from tests.fakes.article_index import MemoryIndex, WordEmbedder
from topics.errors import SupersededError
from topics.events import ArticlePublished, ArticleRetired
from topics.origin import Origin

NO_TEXT = "<p><script>x</script></p>"
OLD, NEW = "Refunds take 30 days.", "Refunds take 5 days."


@pytest.fixture
async def redis_index(redis_client: Redis, redis_keys: Keys) -> AsyncIterator[RedisArticleIndex]:
    index = RedisArticleIndex(redis_client, redis_keys, dimensions=64)
    await index.prepare()
    yield index
    await redis_client.execute_command("FT.DROPINDEX", redis_keys.article_index(), "DD")


@pytest.fixture(params=["memory", "redis"])
def index(request: pytest.FixtureRequest) -> Any:
    return MemoryIndex() if request.param == "memory" else request.getfixturevalue("redis_index")


def written(at_ms: int) -> Origin:
    return Origin(at_ms)


def replayed(at_ms: int) -> Origin:
    return Origin(at_ms, is_replay=True)


async def publish(index: Any, body: str, origin: Origin, *, revision: int = 1, embedder: WordEmbedder | None = None) -> None:
    title = "" if body == NO_TEXT else "Refunds"
    article = ArticlePublished(article_id="a1", title=title, body=body, revision=revision)
    await index_article(article, tenant="acme", embedder=embedder or WordEmbedder(), index=index, origin=origin)


async def retire(index: Any, origin: Origin) -> None:
    await retire_article(ArticleRetired(article_id="a1"), tenant="acme", index=index, origin=origin)


async def texts(index: Any) -> list[str]:
    return [hit.text for hit in await index.lexical("acme", "refunds take days", 5)]


async def refused(change: Awaitable[None]) -> None:
    with pytest.raises(SupersededError):
        await change


async def test_a_replay_does_not_bring_back_a_text_that_was_corrected_since(index: Any) -> None:
    await publish(index, NEW, written(200))
    await refused(publish(index, OLD, replayed(100)))
    assert await texts(index) == [NEW]
    await refused(publish(index, NEW, replayed(100)))
    await refused(publish(index, OLD, replayed(199)))
    assert await texts(index) == [NEW], "the replay of the same text took nothing of the card's moment"


async def test_a_replay_does_not_bring_back_an_article_that_was_retired_since(index: Any) -> None:
    await publish(index, OLD, written(50))
    await retire(index, written(200))
    for revision in (1, 7):
        await refused(publish(index, OLD, replayed(100), revision=revision))
    assert await texts(index) == []


async def test_a_replay_does_not_bring_back_what_was_retired_while_it_lay_among_the_dead_letters(index: Any) -> None:
    await retire(index, written(200))
    await refused(publish(index, OLD, replayed(100)))
    assert await texts(index) == []


async def test_a_replay_does_not_bring_back_an_article_whose_text_was_taken_away_since(index: Any) -> None:
    await publish(index, OLD, written(50))
    await publish(index, NO_TEXT, written(200), revision=2)
    for revision in (1, 2):
        await refused(publish(index, OLD, replayed(100), revision=revision))
    assert await texts(index) == []
    await publish(index, OLD, replayed(100), revision=3)
    assert await texts(index) == [OLD]


@pytest.mark.parametrize("revision", [None, 1])
async def test_a_replayed_removal_takes_nothing_that_was_published_since(index: Any, revision: int | None) -> None:
    await publish(index, NEW, written(200))
    await refused(retire(index, replayed(100)) if revision is None else publish(index, NO_TEXT, replayed(100)))
    assert await texts(index) == [NEW]


async def test_a_replay_with_a_higher_revision_wins_and_with_a_lower_one_loses(index: Any) -> None:
    await publish(index, NEW, written(200), revision=3)
    await publish(index, OLD, replayed(100), revision=4)
    assert await texts(index) == [OLD]
    await refused(publish(index, NEW, replayed(900), revision=3))
    assert await texts(index) == [OLD]
    await publish(index, NO_TEXT, replayed(50), revision=5)
    assert await texts(index) == []


async def test_a_replay_that_is_run_again_after_a_crash_is_done_again(index: Any) -> None:
    for _ in range(2):
        await publish(index, OLD, replayed(100))
        assert await texts(index) == [OLD]
    for _ in range(2):
        await retire(index, replayed(100))
        assert await texts(index) == []


async def test_a_replay_of_what_nothing_has_come_after_is_done(index: Any) -> None:
    await publish(index, OLD, written(100))
    await publish(index, NEW, replayed(150))
    assert await texts(index) == [NEW]
    await retire(index, replayed(160))
    await publish(index, OLD, replayed(170))
    assert await texts(index) == [OLD]


async def test_records_that_are_no_replay_win_as_they_come_whatever_their_clocks_say(index: Any) -> None:
    """A topic that is made anew, or a producer whose clock is behind, loses nothing."""
    await publish(index, NEW, written(200))
    await publish(index, OLD, written(100))
    assert await texts(index) == [OLD]
    await retire(index, written(50))
    assert await texts(index) == []
    await publish(index, NEW, written(40))
    assert await texts(index) == [NEW]


async def test_a_kept_article_is_as_new_as_the_record_that_said_it_again(index: Any) -> None:
    await publish(index, NEW, written(100))
    await publish(index, NEW, written(200))
    await refused(publish(index, OLD, replayed(150)))
    assert await texts(index) == [NEW]


@pytest.mark.parametrize("origin", [written(900), replayed(900)])
async def test_an_older_revision_without_text_takes_nothing_out(index: Any, origin: Origin) -> None:
    await publish(index, NEW, written(200), revision=7)
    await refused(publish(index, NO_TEXT, origin, revision=6))
    assert await texts(index) == [NEW]
    await publish(index, NO_TEXT, origin, revision=7)
    assert await texts(index) == []
    await refused(publish(index, OLD, origin, revision=6))
    assert await texts(index) == []


class Interrupted(WordEmbedder):
    """What another process does while this one embeds."""

    def __init__(self, meanwhile: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self._meanwhile = meanwhile

    async def embed(self, texts: Sequence[str], *, tenant: str) -> Sequence[Sequence[float]]:
        await self._meanwhile()
        return await super().embed(texts, tenant=tenant)


async def test_a_replay_that_races_a_newer_record_leaves_the_newer_one_whoever_ends_first(index: Any) -> None:
    await refused(publish(index, OLD, replayed(100), embedder=Interrupted(lambda: publish(index, NEW, written(200)))))
    assert await texts(index) == [NEW]
    await refused(publish(index, OLD, replayed(250), embedder=Interrupted(lambda: retire(index, written(300)))))
    assert await texts(index) == []
    await publish(index, NEW, written(400), embedder=Interrupted(lambda: publish(index, OLD, replayed(350))))
    assert await texts(index) == [NEW]


class OtherWords(WordEmbedder):
    """Another model of the same length: the same words lie elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.space = "other/64"

    def _vector(self, text: str) -> list[float]:
        half = self.dimensions // 2
        found = super()._vector(text)
        return found[half:] + found[:half]


async def best(index: Any, query: str, embedder: WordEmbedder) -> str | None:
    passages = await HybridRetriever(branches=index, embedder=embedder).search(tenant="acme", query=query, limit=5)
    return passages[0].article_id if passages else None


async def test_after_another_embedding_model_is_set_passages_are_found_by_words_until_they_are_published_again(index: Any) -> None:
    bodies = {"a1": "A refund of an order is paid back within days.", "a2": "A card is blocked at once when it is lost."}
    articles = [ArticlePublished(article_id=name, title="Help", body=body) for name, body in bodies.items()]
    for article in articles:
        await index_article(article, tenant="acme", embedder=WordEmbedder(), index=index)
    refund, card, neither = "When is a refund of an order paid back?", "My card is lost, is it blocked?", "dinosaurs"
    assert [await best(index, query, OtherWords()) for query in (refund, card, neither)] == ["a1", "a2", None]
    await index_article(articles[0], tenant="acme", embedder=OtherWords(), index=index)
    assert [await best(index, query, OtherWords()) for query in (refund, card, neither)] == ["a1", "a2", None]
    far = "order of dinosaurs: triceratops, stegosaurus, brachiosaurus, velociraptor, ankylosaurus, iguanodon, diplodocus"
    assert await index.lexical("acme", far, 5) != []
    assert await best(index, far, OtherWords()) is None, "what is near can be told of the one that was published again"
