"""Find passages: words and meaning are searched at once, and their ranks are fused.

Source: Cormack, Clarke and Buettcher, "Reciprocal rank fusion", SIGIR 2009 (c = 60).
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol, TypeVar

import anyio

from flows.chunking import windows
from flows.duplicates import distinct
from flows.ports import Embedder, Passage, Reranker
from topics.errors import RetryableError, SluiceError

RRF_C: Final = 60
BRANCH_LIMIT: Final = 50
RERANKED: Final = 40
QUERY_WINDOWS: Final = 8

PassageId = tuple[str, int]


class _Found(Protocol):
    """A passage as a branch returns it. `score` is the branch's own; for `nearest` it is the cosine similarity."""

    @property
    def tenant(self) -> str: ...
    @property
    def article_id(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def title_path(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def revision(self) -> int: ...
    @property
    def ordinal(self) -> int: ...
    @property
    def url(self) -> str | None: ...
    @property
    def score(self) -> float: ...
    @property
    def space(self) -> str: ...


_Owned = TypeVar("_Owned", bound=_Found)


class Branches(Protocol):
    """Two ways into one index, each with its own filter on the tenant, best first."""

    async def lexical(self, tenant: str, words: str, limit: int) -> Sequence[_Found]:
        """Passages that share words with a text."""
        ...

    async def nearest(self, tenant: str, vector: Sequence[float], limit: int) -> Sequence[_Found]:
        """Passages whose vectors point the same way; `score` is the cosine."""
        ...


@dataclass(frozen=True, slots=True)
class FusionPolicy:
    """How the branches are weighed, and when nothing is near enough.

    Measured with all-MiniLM-L6-v2 on three judged sets by `python -m bench.figures retrieval`: chosen on one half of the questions,
    where the means of weights from 0.3 to 0.7 differ by 0.001.

    `min_similarity`: when no passage is this near in meaning, nothing is found. It refuses three quarters of the questions of
    another field, and 4 in 100 of those that nothing answers in their own: a passage can be near and not answer, so the model
    must still say when none does.
    `agreed_allowance`: so much less is enough when both branches put the same article first.
    `per_article`: passages of one article at most, so that one long article does not fill the answer.
    """

    lexical_weight: float = 0.6
    dense_weight: float = 1.0
    min_similarity: float = 0.40
    agreed_allowance: float = 0.10
    per_article: int = 2


class HybridRetriever:
    """`flows/ports.Retriever` over an index with two branches."""

    def __init__(
        self, *, branches: Branches, embedder: Embedder, policy: FusionPolicy | None = None, reranker: Reranker | None = None
    ) -> None:
        self._branches = branches
        self._embedder = embedder
        self._policy = policy or FusionPolicy()
        self._reranker = reranker

    async def search(self, *, tenant: str, query: str, limit: int) -> Sequence[Passage]:
        """The best passages of one tenant, best first; empty when nothing is near enough.

        Of passages that say nearly the same, in whatever articles, only the best is given.

        Raises:
            ValueError: There is no tenant. Nothing was asked.
            UnavailableError, OutageError: A branch or the embedding model did not answer. A half result is never returned.
        """
        if not tenant.strip():
            raise ValueError("a search needs a tenant")
        if not query.strip() or limit < 1:
            return []
        lexical, dense = await self._both(tenant, query)
        # An adapter that forgot its filter must not become an answer.
        lexical = self._checked(tenant, lexical)
        dense = self._checked(tenant, dense)
        dense = [found for found in dense if self._is_judged(found)]
        if not near_enough(lexical, dense, self._policy):
            # By another model: how near a passage is cannot be told, so its words decide until it is embedded again.
            lexical, dense = [found for found in lexical if not self._is_judged(found)], []
        if not lexical and not dense:
            return []
        ranked = fuse({"lexical": lexical, "dense": dense}, self._policy)
        single = distinct((_passage(found, score) for found, score in ranked), text=lambda passage: passage.text)
        if self._reranker is None:
            return list(islice(single, limit))
        best = list(islice(single, max(limit, RERANKED)))
        return self._checked(tenant, await self._reranker.rerank(query, best, limit=limit))[:limit]

    def _is_judged(self, found: _Found) -> bool:
        return not found.space or found.space == self._embedder.space

    def _checked(self, tenant: str, passages: Sequence[_Owned]) -> list[_Owned]:
        return [passage for passage in passages if passage.tenant == tenant]

    async def _both(self, tenant: str, query: str) -> tuple[Sequence[_Found], Sequence[_Found]]:
        found: dict[str, Sequence[_Found]] = {}

        async def lexical() -> None:
            found["lexical"] = await self._branches.lexical(tenant, query, BRANCH_LIMIT)

        async def dense() -> None:
            vectors = await self._embedder.embed(windows(query, most=QUERY_WINDOWS), tenant=tenant)
            found["dense"] = await self._branches.nearest(tenant, mean_direction(vectors), BRANCH_LIMIT)

        try:
            async with anyio.create_task_group() as group:
                group.start_soon(lexical)
                group.start_soon(dense)
        except ExceptionGroup as failures:
            raise _worst(failures) from failures
        return found["lexical"], found["dense"]


def near_enough(lexical: Sequence[_Found], dense: Sequence[_Found], policy: FusionPolicy) -> bool:
    """Whether what both branches found, best first, can have to do with the question."""
    if not dense:
        return False
    agreed = bool(lexical) and lexical[0].article_id == dense[0].article_id
    needed = policy.min_similarity - (policy.agreed_allowance if agreed else 0.0)
    return max(found.score for found in dense) >= needed


def mean_direction(vectors: Sequence[Sequence[float]]) -> list[float]:
    """The unit vector between unit vectors: what stands for a question that is longer than the encoder reads at once.

    Vectors that cancel each other leave the first one.
    """
    sums = [math.fsum(places) for places in zip(*vectors, strict=True)]
    length = math.sqrt(math.fsum(number * number for number in sums))
    return [number / length for number in sums] if length > 1e-6 else list(vectors[0])


def fuse(branches: Mapping[str, Sequence[_Found]], policy: FusionPolicy) -> list[tuple[_Found, float]]:
    """Merge ranked lists: each place gives `weight / (60 + rank)`. Ties go to the article and ordinal, so order repeats.

    Returns:
        Each passage once, best first, `per_article` of an article at most.
    """
    weights = {"lexical": policy.lexical_weight, "dense": policy.dense_weight}
    scores: dict[PassageId, float] = {}
    passages: dict[PassageId, _Found] = {}
    for branch, ranking in branches.items():
        for rank, found in enumerate(ranking, start=1):
            key = (found.article_id, found.ordinal)
            passages.setdefault(key, found)
            scores[key] = scores.get(key, 0.0) + weights[branch] / (RRF_C + rank)
    best_first = sorted(scores, key=lambda key: (-scores[key], key))
    return [(passages[key], scores[key]) for key in _at_most(best_first, policy.per_article)]


def _at_most(keys: Sequence[PassageId], per_article: int) -> Iterator[PassageId]:
    taken: Counter[str] = Counter()
    for key in keys:
        taken[key[0]] += 1
        if taken[key[0]] <= per_article:
            yield key


def _worst(failures: ExceptionGroup[Exception]) -> Exception:
    """The failure that decides: a bug before an outage, an outage before a failed call."""
    leaves = [error for error in failures.exceptions if not isinstance(error, RetryableError)] or list(failures.exceptions)
    return min(leaves, key=lambda error: isinstance(error, SluiceError))


def _passage(found: _Found, score: float) -> Passage:
    return Passage(
        tenant=found.tenant,
        article_id=found.article_id,
        title=found.title,
        title_path=found.title_path,
        text=found.text,
        revision=found.revision,
        ordinal=found.ordinal,
        url=found.url,
        score=score,
    )
