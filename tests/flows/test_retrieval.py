"""Two searches become one ranking, of one tenant, or nothing."""

import math
from collections.abc import Sequence

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.chunking import PASSAGE_TOKENS
from flows.ingest import index_article
from flows.ports import Passage, Reranker, Retriever
from flows.retrieval import QUERY_WINDOWS, RRF_C, FusionPolicy, HybridRetriever, fuse, mean_direction, near_enough
from flows.tokens import count_tokens
from tests.fakes.article_index import MemoryIndex, WordEmbedder
from topics.errors import OutageError, SluiceError, UnavailableError
from topics.events import ArticlePublished

RANKINGS = st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 3)), unique=True, max_size=12)


def passage(article: str, ordinal: int = 0, *, tenant: str = "acme", score: float = 1.0, text: str = "x") -> Passage:
    return Passage(
        tenant=tenant, article_id=article, title="T", title_path="T", text=text, revision=1, ordinal=ordinal, score=score
    )


@pytest.fixture
async def index() -> MemoryIndex:
    index = MemoryIndex()
    articles = {"refund": "refund of a card payment takes days", "login": "reset the password to log in again"}
    for tenant in ("acme", "other"):
        for name, body in articles.items():
            event = ArticlePublished(article_id=name, title=name, body=body)
            await index_article(event, tenant=tenant, embedder=WordEmbedder(), index=index)
    return index


def retriever(index: MemoryIndex, *, embedder: WordEmbedder | None = None, policy: FusionPolicy | None = None) -> HybridRetriever:
    return HybridRetriever(branches=index, embedder=embedder or WordEmbedder(), policy=policy)


async def test_the_best_passage_of_the_tenant_is_first(index: MemoryIndex) -> None:
    port: Retriever = retriever(index)
    found = await port.search(tenant="acme", query="refund of a card payment", limit=5)
    assert found[0].article_id == "refund"
    assert {hit.tenant for hit in found} == {"acme"}
    assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)


async def test_a_broken_adapter_still_shows_nobody_elses_passage(index: MemoryIndex) -> None:
    index.leaks = True
    for tenant in ("acme", "other", "stranger"):
        found = await retriever(index).search(tenant=tenant, query="refund of a card payment", limit=10)
        assert {hit.tenant for hit in found} <= {tenant}
    assert await retriever(index).search(tenant="stranger", query="refund of a card payment", limit=10) == []


async def test_a_foreign_passage_does_not_lend_its_nearness(index: MemoryIndex) -> None:
    index.leaks = True
    del index.articles["acme", "refund"]
    policy = FusionPolicy(min_similarity=0.5)
    assert await retriever(index, policy=policy).search(tenant="acme", query="refund of a card payment takes", limit=5) == []


async def test_nothing_near_finds_nothing_whatever_words_are_shared(index: MemoryIndex) -> None:
    query = "the days of dinosaurs: triceratops, stegosaurus, brachiosaurus, velociraptor, ankylosaurus, iguanodon"
    assert await index.lexical("acme", query, 5) != []
    policy = FusionPolicy(agreed_allowance=0.0)
    assert await retriever(index, policy=policy).search(tenant="acme", query=query, limit=5) == []


@pytest.mark.parametrize(("query", "limit"), [("", 5), (" \n", 5), ("refund", 0)])
async def test_no_question_is_no_search(index: MemoryIndex, query: str, limit: int) -> None:
    embedder = WordEmbedder()
    assert await retriever(index, embedder=embedder).search(tenant="acme", query=query, limit=limit) == []
    assert embedder.texts == []


async def test_the_limit_holds(index: MemoryIndex) -> None:
    policy = FusionPolicy(min_similarity=0.0)
    assert len(await retriever(index, policy=policy).search(tenant="acme", query="refund the password", limit=1)) == 1


@pytest.mark.parametrize(
    ("lexical", "nearest", "embedder", "expected"),
    [
        (UnavailableError("a"), None, None, UnavailableError),
        (None, OutageError("b"), None, OutageError),
        (None, None, UnavailableError("c"), UnavailableError),
        (UnavailableError("a"), OutageError("b"), None, OutageError),
        (OutageError("a"), None, UnavailableError("c"), OutageError),
        (ZeroDivisionError("bug"), OutageError("b"), None, ZeroDivisionError),
    ],
)
async def test_a_failed_branch_fails_the_search_with_one_plain_error(
    index: MemoryIndex, lexical: Exception | None, nearest: Exception | None, embedder: Exception | None, expected: type[Exception]
) -> None:
    index.errors = {name: error for name, error in (("lexical", lexical), ("nearest", nearest)) if error}
    words = WordEmbedder()
    words.error = embedder
    with pytest.raises((SluiceError, ZeroDivisionError)) as caught:
        await retriever(index, embedder=words).search(tenant="acme", query="refund", limit=5)
    assert type(caught.value) is expected


async def test_both_branches_run_at_once() -> None:
    class Meeting(MemoryIndex):
        def __init__(self) -> None:
            super().__init__()
            self.here = [anyio.Event(), anyio.Event()]

        async def lexical(self, tenant: str, words: str, limit: int) -> Sequence[Passage]:
            await self._meet(0)
            return await super().lexical(tenant, words, limit)

        async def nearest(self, tenant: str, vector: Sequence[float], limit: int) -> Sequence[Passage]:
            await self._meet(1)
            return await super().nearest(tenant, vector, limit)

        async def _meet(self, me: int) -> None:
            self.here[me].set()
            await self.here[1 - me].wait()

    with anyio.fail_after(2):
        assert await retriever(Meeting()).search(tenant="acme", query="refund", limit=5) == []


def test_ranks_add_up_by_weight() -> None:
    ranked = fuse({"lexical": [passage("a"), passage("b")], "dense": [passage("b")]}, FusionPolicy(lexical_weight=0.5))
    assert [(found.article_id, round(score, 6)) for found, score in ranked] == [
        ("b", round(0.5 / (RRF_C + 2) + 1 / (RRF_C + 1), 6)),
        ("a", round(0.5 / (RRF_C + 1), 6)),
    ]


@given(RANKINGS, RANKINGS, st.integers(1, 3))
def test_fusion_keeps_each_passage_once_in_falling_order(
    lexical: list[tuple[str, int]], dense: list[tuple[str, int]], most: int
) -> None:
    lists = {"lexical": [passage(*key) for key in lexical], "dense": [passage(*key) for key in dense]}
    ranked = fuse(lists, FusionPolicy(per_article=most))
    keys = [(found.article_id, found.ordinal) for found, _ in ranked]
    assert len(keys) == len(set(keys))
    assert [score for _, score in ranked] == sorted((score for _, score in ranked), reverse=True)
    articles = [article for article, _ in keys]
    assert all(articles.count(article) <= most for article in articles)
    assert set(articles) == {article for article, _ in [*lexical, *dense]}
    assert ranked == fuse(lists, FusionPolicy(per_article=most))


@given(RANKINGS)
def test_one_branch_alone_keeps_its_order(ranking: list[tuple[str, int]]) -> None:
    ranked = fuse({"lexical": [], "dense": [passage(*key) for key in ranking]}, FusionPolicy(per_article=99))
    assert [(found.article_id, found.ordinal) for found, _ in ranked] == ranking


@given(RANKINGS, RANKINGS, st.floats(0.0, 2.0), st.floats(0.01, 2.0))
def test_a_fused_score_is_the_sum_that_a_hand_would_write(
    lexical: list[tuple[str, int]], dense: list[tuple[str, int]], lexical_weight: float, dense_weight: float
) -> None:
    policy = FusionPolicy(lexical_weight=lexical_weight, dense_weight=dense_weight, per_article=99)
    ranked = fuse({"lexical": [passage(*key) for key in lexical], "dense": [passage(*key) for key in dense]}, policy)
    for found, score in ranked:
        key = (found.article_id, found.ordinal)
        by_hand = lexical_weight / (60 + lexical.index(key) + 1) if key in lexical else 0.0
        by_hand += dense_weight / (60 + dense.index(key) + 1) if key in dense else 0.0
        assert score == pytest.approx(by_hand)
    assert len(ranked) == len({*lexical, *dense})


@pytest.mark.parametrize("tenant", ["", " ", "\n\t"])
async def test_without_a_tenant_nothing_is_asked(index: MemoryIndex, tenant: str) -> None:
    index.errors = {"lexical": AssertionError("asked"), "nearest": AssertionError("asked")}
    embedder = WordEmbedder()
    with pytest.raises(ValueError, match="tenant"):
        await retriever(index, embedder=embedder).search(tenant=tenant, query="refund", limit=5)
    assert embedder.texts == []


async def test_of_two_articles_that_say_the_same_one_is_given_and_the_other_stands_in_when_it_is_retired() -> None:
    index = MemoryIndex()
    body = (
        "A refund of a card payment takes five days, and the bank sends a letter when the money has arrived with you, so that "
        "there is nothing left to do for anybody who has asked for it in the branch or by the form on this page."
    )
    for name, text in (("one", body), ("two", body.replace("letter", "note")), ("cash", body.replace("five", "5"))):
        event = ArticlePublished(article_id=name, title="Refunds", body=text)
        await index_article(event, tenant="acme", embedder=WordEmbedder(), index=index)
    asked = {"tenant": "acme", "query": body, "limit": 5}
    first = [found.article_id for found in await retriever(index).search(**asked)]
    assert len(first) == 2
    assert "cash" in first
    (shown,) = set(first) - {"cash"}
    await index.remove(tenant="acme", article_id=shown)
    assert set(first) ^ {found.article_id for found in await retriever(index).search(**asked)} == {"one", "two"}


async def test_a_reranker_has_the_last_word_on_order_and_none_on_whose_passages_they_are(index: MemoryIndex) -> None:
    class Backwards:
        async def rerank(self, query: str, passages: Sequence[Passage], *, limit: int) -> Sequence[Passage]:
            assert query == "refund the password"
            return [passage("foreign", tenant="other"), *reversed(passages)][: limit + 1]

    policy = FusionPolicy(min_similarity=0.0)
    plain = await retriever(index, policy=policy).search(tenant="acme", query="refund the password", limit=2)
    port: Reranker = Backwards()
    turned = HybridRetriever(branches=index, embedder=WordEmbedder(), policy=policy, reranker=port)
    assert await turned.search(tenant="acme", query="refund the password", limit=2) == [*reversed(plain)]


async def test_a_long_question_is_embedded_in_parts_and_searched_once(index: MemoryIndex) -> None:
    embedder = WordEmbedder()
    query = " ".join(f"word{number} refund" for number in range(400))
    await retriever(index, embedder=embedder).search(tenant="acme", query=query, limit=5)
    assert 1 < len(embedder.texts) <= QUERY_WINDOWS
    assert all(count_tokens(text) <= PASSAGE_TOKENS for text in embedder.texts)
    assert query.startswith("".join(embedder.texts).rstrip())


UNIT = st.lists(st.floats(-1, 1), min_size=3, max_size=3).filter(lambda vector: math.hypot(*vector) > 0.1)


@given(st.lists(UNIT, min_size=1, max_size=5))
def test_the_mean_direction_is_a_unit_vector_and_one_vector_is_its_own(raw: list[list[float]]) -> None:
    vectors = [[number / math.hypot(*vector) for number in vector] for vector in raw]
    assert math.hypot(*mean_direction(vectors)) == pytest.approx(1.0)
    assert mean_direction(vectors[:1]) == pytest.approx(vectors[0])
    assert mean_direction([vectors[0], [-number for number in vectors[0]]]) == vectors[0]


@pytest.mark.parametrize(
    ("first_word", "best", "enough"),
    [("a", 0.31, True), ("b", 0.31, False), ("b", 0.41, True), ("a", 0.29, False), (None, 0.39, False), (None, 0.41, True)],
)
def test_less_nearness_is_enough_when_both_branches_put_the_same_article_first(
    first_word: str | None, best: float, *, enough: bool
) -> None:
    lexical = [passage(first_word)] if first_word else []
    assert near_enough(lexical, [passage("a", score=best), passage("b", score=0.1)], FusionPolicy()) is enough
    assert not near_enough(lexical, [], FusionPolicy())
