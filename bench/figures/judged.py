"""Three sets of articles with judged questions, how a ranking is scored, and an index that holds them."""

import gzip
import hashlib
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from redis.asyncio import Redis

from bench.figures.vectors import SHIPPED, KeptVectors
from flows.ingest import index_article
from infra.local.stack import local_stack
from infra.models.embeddings import ProviderEmbedder
from infra.models.guarded import GuardedEmbedder
from infra.redis.client import connect
from infra.redis.keys import Keys
from infra.redis.search import RedisArticleIndex
from topics.events import ArticlePublished

SETS: Final = ("wixqa", "techqa", "rhobank_kb")
CUTOFFS: Final = (5, 10)

_ROOT: Final = Path(__file__).parents[1] / "data"


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the articles that were judged relevant. None: nothing answers it."""

    question_id: str
    text: str
    relevant: frozenset[str]

    @property
    def tunes(self) -> bool:
        """Whether it is of the half that weights are chosen on. A hash decides, so that the halves never change."""
        return hashlib.sha256(self.question_id.encode()).digest()[7] % 2 == 0


@dataclass(frozen=True, slots=True)
class Judged:
    """A set of articles with its questions. The name is also its tenant."""

    name: str
    articles: tuple[ArticlePublished, ...]
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class Score:
    """How well rankings did, over questions: shares of the relevant articles found, and of the first one's place."""

    recall_at_5: float
    recall_at_10: float
    mrr_at_10: float

    def __iter__(self):  # noqa: ANN204 -- three floats
        """The three, in the order of a table."""
        return iter((self.recall_at_5, self.recall_at_10, self.mrr_at_10))


@dataclass(frozen=True, slots=True)
class Shelf:
    """An index with articles in it, and what embeds the questions."""

    redis: Redis
    index: RedisArticleIndex
    embedder: KeptVectors

    async def beside(self, prefix: str) -> "Shelf":
        """An empty index of its own on the same Redis: words are counted over all that lies in one."""
        index = RedisArticleIndex(self.redis, Keys(prefix))
        await index.prepare()
        return replace(self, index=index)


def load(name: str) -> Judged:
    """A set with all its questions."""
    questions = [Question(row["id"], row["text"], frozenset(row["relevant"])) for row in _rows(name, "questions")]
    articles = [ArticlePublished(article_id=row["id"], title=row["title"], body=row["text"]) for row in _rows(name, "articles")]
    return Judged(name, tuple(articles), tuple(questions))


def score(rankings: Sequence[tuple[Sequence[str], frozenset[str]]]) -> Score:
    """Mean over (ranked article ids, relevant ids). Recall at k: found relevant ones, of k or of all there are if fewer."""
    count = len(rankings) or 1
    recalls = [sum(len(set(ranked[:k]) & right) / min(k, len(right)) for ranked, right in rankings) / count for k in CUTOFFS]
    first = sum(next((1 / place for place, one in enumerate(ranked[:10], 1) if one in right), 0.0) for ranked, right in rankings)
    return Score(*recalls, first / count)


@asynccontextmanager
async def shelf(prefix: str = "figures", *, shipped: bool = True) -> AsyncGenerator[Shelf]:
    """An empty index on a Redis of its own, with the embedded model server to embed what `shipped` vectors lack."""
    with TemporaryDirectory(prefix="sluice-figures-", ignore_cleanup_errors=True) as folder:
        async with local_stack(data_dir=Path(folder), kafka_bootstrap="none", back_office=False) as stack:
            redis = connect(stack.endpoints.redis_url, timeout_s=30.0, max_connections=32)
            url = stack.endpoints.model_base_url
            provider = ProviderEmbedder(base_url=url, api_key="none", model="sluice-minilm", timeout_s=120.0, dimensions=384)
            kept = KeptVectors(GuardedEmbedder(provider), shipped=SHIPPED if shipped else None)
            try:
                yield await Shelf(redis, RedisArticleIndex(redis), kept).beside(prefix)
            finally:
                kept.save()
                await provider.aclose()
                await redis.aclose()


async def put(on: Shelf, tenant: str, articles: Sequence[ArticlePublished]) -> int:
    """Index articles, one after the other, so that equal scores come in the same order each time. Returns their passages."""
    try:
        return sum([await index_article(article, tenant=tenant, embedder=on.embedder, index=on.index) for article in articles])
    finally:
        on.embedder.save()


def _rows(name: str, what: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in gzip.decompress((_ROOT / name / f"{what}.jsonl.gz").read_bytes()).splitlines()]
