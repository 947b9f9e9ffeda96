"""An article index and an embedder in memory."""

import hashlib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from flows.ports import Passage
from topics.errors import SupersededError
from topics.origin import UNKNOWN_ORIGIN, Origin

Score = Callable[[Passage, Sequence[float]], float]


class WordEmbedder:
    """Texts as unit vectors of their words, hashed to places: texts that share words are near."""

    def __init__(self, *, dimensions: int = 64) -> None:
        self.dimensions = dimensions
        self.space = f"words/{dimensions}"
        self.error: Exception | None = None
        self.texts: list[str] = []
        self.tenants: list[str] = []

    async def embed(self, texts: Sequence[str], *, tenant: str) -> Sequence[Sequence[float]]:
        self.tenants.append(tenant)
        if self.error:
            raise self.error
        self.texts += texts
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> list[float]:
        counts = [0.0] * self.dimensions
        for word in re.findall(r"\w+", text.lower()):
            counts[hashlib.sha256(word.encode()).digest()[0] % self.dimensions] += 1.0
        length = math.hypot(*counts) or 1.0
        return [count / length for count in counts]


class MemoryIndex:
    """Articles by tenant and id. `leaks` makes both searches forget their filter; `errors` fail a branch by its name."""

    def __init__(self) -> None:
        self.articles: dict[tuple[str, str], list[tuple[Passage, Sequence[float]]]] = {}
        self.contents: dict[tuple[str, str], str] = {}
        self.spaces: dict[tuple[str, str], str] = {}
        self.newest: dict[tuple[str, str], tuple[int | None, int]] = {}
        self.leaks = False
        self.errors: dict[str, Exception] = {}

    async def keep(
        self, *, tenant: str, article_id: str, passages: Sequence[Passage], content: str, origin: Origin = UNKNOWN_ORIGIN
    ) -> bool:
        self._check(tenant, article_id, passages[0].revision, origin)
        known = self.articles.get((tenant, article_id))
        if not known or self.contents.get((tenant, article_id)) != content:
            return False
        new = passages[0]
        self.newest[(tenant, article_id)] = (new.revision, origin.written_at_ms)
        self.articles[(tenant, article_id)] = [(replace(p, revision=new.revision, url=new.url), vector) for p, vector in known]
        return True

    async def embedded(self, *, tenant: str, article_id: str, space: str) -> dict[tuple[str, str], Sequence[float]]:
        if self.spaces.get((tenant, article_id)) != space:
            return {}
        return {(passage.title_path, passage.text): vector for passage, vector in self.articles.get((tenant, article_id), [])}

    async def replace(
        self,
        *,
        tenant: str,
        article_id: str,
        passages: Sequence[Passage],
        vectors: Sequence[Sequence[float]],
        content: str = "",
        space: str = "",
        origin: Origin = UNKNOWN_ORIGIN,
    ) -> None:
        self._check(tenant, article_id, passages[0].revision, origin)
        self.newest[(tenant, article_id)] = (passages[0].revision, origin.written_at_ms)
        self.articles[(tenant, article_id)] = list(zip(passages, vectors, strict=True))
        self.contents[(tenant, article_id)] = content
        self.spaces[(tenant, article_id)] = space

    async def remove(self, *, tenant: str, article_id: str, origin: Origin = UNKNOWN_ORIGIN, revision: int | None = None) -> int:
        self._check(tenant, article_id, revision, origin)
        self.newest[(tenant, article_id)] = (revision, origin.written_at_ms)
        return len(self.articles.pop((tenant, article_id), []))

    async def lexical(self, tenant: str, words: str, limit: int) -> Sequence[Passage]:
        asked = set(re.findall(r"\w+", words.lower()))
        return self._best("lexical", tenant, lambda passage, _: len(asked & set(re.findall(r"\w+", passage.text.lower()))), limit)

    async def nearest(self, tenant: str, vector: Sequence[float], limit: int) -> Sequence[Passage]:
        return self._best("nearest", tenant, lambda _, other: sum(a * b for a, b in zip(vector, other, strict=True)), limit)

    def _check(self, tenant: str, article_id: str, revision: int | None, origin: Origin) -> None:
        newest, written = self.newest.get((tenant, article_id), (None, 0))
        step = None if revision is None or newest is None else revision - newest
        if (step and step < 0) or (origin.is_replay and origin.written_at_ms < written and not step):
            raise SupersededError("newer")

    def _best(self, branch: str, tenant: str, score: Score, limit: int) -> Sequence[Passage]:
        if branch in self.errors:
            raise self.errors[branch]
        rows = [
            (replace(passage, space=self.spaces.get(place, "")), vector)
            for place, rows in self.articles.items()
            if place[0] == tenant or self.leaks
            for passage, vector in rows
        ]
        found = [replace(passage, score=float(score(passage, vector))) for passage, vector in rows]
        return sorted((hit for hit in found if hit.score > 0), key=lambda hit: -hit.score)[:limit]
