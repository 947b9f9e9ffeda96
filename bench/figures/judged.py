"""Three sets of articles with judged questions, how a ranking is scored, and an index that holds them."""

import gzip
import hashlib
import json
from array import array
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import anyio

from flows.ingest import index_article
from flows.ports import Embedder
from infra.local.stack import local_stack
from infra.models.embeddings import ProviderEmbedder
from infra.models.guarded import GuardedEmbedder
from infra.redis.client import connect
from infra.redis.keys import Keys
from infra.redis.search import RedisArticleIndex
from topics.events import ArticlePublished

SETS: Final = ("wixqa", "techqa", "rhobank_kb")
SAMPLED: Final = 4
CUTOFFS: Final = (5, 10)

_ROOT: Final = Path(__file__).parents[1] / "data"
_CACHE: Final = Path(".cache/figures")
_WRITERS: Final = 4


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the articles that were judged relevant. None: nothing answers it."""

    question_id: str
    text: str
    relevant: frozenset[str]

    @property
    def tunes(self) -> bool:
        """Whether it is of the half that weights are chosen on. A hash decides, so that the halves never change."""
        return _drawn(self.question_id, 2)


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

    index: RedisArticleIndex
    embedder: "KeptVectors"


def load(name: str, *, full: bool) -> Judged:
    """A set; the short form of the larger ones is a quarter of the questions, what answers them, and a quarter of the rest."""
    questions = [Question(row["id"], row["text"], frozenset(row["relevant"])) for row in _rows(name, "questions")]
    articles = [ArticlePublished(article_id=row["id"], title=row["title"], body=row["text"]) for row in _rows(name, "articles")]
    if not full and name != "wixqa":
        questions = [question for question in questions if _drawn(question.question_id, SAMPLED, "short")]
        wanted = frozenset[str]().union(*(question.relevant for question in questions))
        articles = [one for one in articles if one.article_id in wanted or _drawn(one.article_id, SAMPLED, "short")]
    return Judged(name, tuple(articles), tuple(questions))


def score(rankings: Sequence[tuple[Sequence[str], frozenset[str]]]) -> Score:
    """Mean over (ranked article ids, relevant ids). Recall at k: found relevant ones, of k or of all there are if fewer."""
    count = len(rankings) or 1
    recalls = [sum(len(set(ranked[:k]) & right) / min(k, len(right)) for ranked, right in rankings) / count for k in CUTOFFS]
    first = sum(next((1 / place for place, one in enumerate(ranked[:10], 1) if one in right), 0.0) for ranked, right in rankings)
    return Score(*recalls, first / count)


@asynccontextmanager
async def shelf(prefix: str = "figures") -> AsyncGenerator[Shelf]:
    """An empty index on a Redis of its own, with the embedded model server to embed."""
    with TemporaryDirectory(prefix="sluice-figures-", ignore_cleanup_errors=True) as folder:
        async with local_stack(data_dir=Path(folder), kafka_bootstrap="none", back_office=False) as stack:
            redis = connect(stack.endpoints.redis_url, timeout_s=30.0, max_connections=32)
            url = stack.endpoints.model_base_url
            provider = ProviderEmbedder(base_url=url, api_key="none", model="sluice-minilm", timeout_s=120.0, dimensions=384)
            kept = KeptVectors(GuardedEmbedder(provider), _CACHE / "vectors.bin")
            try:
                index = RedisArticleIndex(redis, Keys(prefix))
                await index.prepare()
                yield Shelf(index, kept)
            finally:
                kept.save()
                await provider.aclose()
                await redis.aclose()


async def put(on: Shelf, tenant: str, articles: Sequence[ArticlePublished]) -> int:
    """Index articles, a few at a time. Returns how many passages they have."""
    count = 0
    todo = iter(articles)

    async def write() -> None:
        nonlocal count
        for article in todo:
            passages = await index_article(article, tenant=tenant, embedder=on.embedder, index=on.index)
            count += passages  # not in one step: others count while this one waits

    try:
        async with anyio.create_task_group() as group:
            for _ in range(_WRITERS):
                group.start_soon(write)
    finally:
        on.embedder.save()
    return count


class KeptVectors:
    """An embedder that keeps what it embedded in a file, so that a second run does not wait for the model.

    The file holds the hash of a text and its vector, one after the other; it lies in `.cache`, and may be removed.
    """

    _WIDTH: Final = 32 + 4 * 384

    def __init__(self, embedder: Embedder, path: Path) -> None:
        self._embedder = embedder
        self.space = embedder.space
        self._path = path
        stored = path.read_bytes() if path.exists() else b""
        starts = range(0, len(stored) - self._WIDTH + 1, self._WIDTH)
        self._known = {stored[at : at + 32]: stored[at + 32 : at + self._WIDTH] for at in starts}
        self._new: list[bytes] = []

    async def embed(self, texts: Sequence[str], *, tenant: str) -> Sequence[Sequence[float]]:
        """One vector a text, in their order."""
        hashes = [hashlib.sha256(text.encode()).digest() for text in texts]
        missing = {one: text for one, text in zip(hashes, texts, strict=True) if one not in self._known}
        vectors = await self._embedder.embed(list(missing.values()), tenant=tenant)
        for one, vector in zip(missing, vectors, strict=True):
            self._known[one] = array("f", vector).tobytes()
            self._new.append(one)
        return [array("f", self._known[one]) for one in hashes]

    def save(self) -> None:
        """Add what is new to the file."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.writelines(one + self._known[one] for one in self._new)
        self._new.clear()


def _rows(name: str, what: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in gzip.decompress((_ROOT / name / f"{what}.jsonl.gz").read_bytes()).splitlines()]


def _drawn(name: str, one_in: int, salt: str = "") -> bool:
    return int.from_bytes(hashlib.sha256(f"{salt}{name}".encode()).digest()[:8]) % one_in == 0
