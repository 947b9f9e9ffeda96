"""What flows need from outside. Adapters live in `infra` and fit by shape."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

from topics.example import Example
from topics.origin import Origin


class Clock(Protocol):
    """Where the time comes from."""

    def now(self) -> datetime:
        """The current instant, aware, UTC."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that never go back, for measuring spans."""
        ...


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of an article, as stored in the index. `score` is higher for better and only compares within one search.

    `space`: of its vector, as `Embedder` names it; only what a branch found has one.
    """

    tenant: str
    article_id: str
    title: str
    title_path: str
    text: str
    revision: int
    ordinal: int
    url: str | None = None
    score: float = 0.0
    space: str = ""


class Retriever(Protocol):
    """Search over one tenant's articles."""

    async def search(self, *, tenant: str, query: str, limit: int) -> Sequence[Passage]:
        """The best passages, best first; empty when nothing is near enough.

        Raises:
            UnavailableError: The index or the embedding model did not answer.
        """
        ...


class Reranker(Protocol):
    """A second look at what a search found."""

    async def rerank(self, query: str, passages: Sequence[Passage], *, limit: int) -> Sequence[Passage]:
        """At most `limit` of the passages, each once, best first; nothing is added.

        Raises:
            UnavailableError: A model that it asks did not answer.
        """
        ...


class ArticleIndex(Protocol):
    """Where passages are kept, by their newest revision.

    Records of one revision win in the order of their arrival. A replay is late: unless its revision is higher, it loses to what
    came of a record that was written after its own, be it that the article was taken out.

    What loses raises `SupersededError`, and changes nothing.
    """

    async def keep(self, *, tenant: str, article_id: str, passages: Sequence[Passage], content: str, origin: Origin) -> bool:
        """Whether nothing has to be embedded, since the index holds this content. Revision and url become those of `passages`.

        Raises:
            SupersededError: What the index holds is newer.
        """
        ...

    async def embedded(self, *, tenant: str, article_id: str, space: str) -> Mapping[tuple[str, str], Sequence[float]]:
        """The vectors of an article by title path and text, as far as they are of this space."""
        ...

    async def replace(
        self,
        *,
        tenant: str,
        article_id: str,
        passages: Sequence[Passage],
        vectors: Sequence[Sequence[float]],
        content: str,
        space: str,
        origin: Origin,
    ) -> None:
        """Swap all passages of an article at once. `vectors[i]` belongs to `passages[i]`, and all are of one space.

        `content` is what `keep` tells again, `space` what `embedded` does.

        Raises:
            SupersededError: What the index holds is newer.
        """
        ...

    async def remove(self, *, tenant: str, article_id: str, origin: Origin, revision: int | None = None) -> int:
        """Take an article out, and remember when. Returns how many passages there were.

        Args:
            revision: The one that has no text; None when the article is withdrawn, whatever its revision.

        Raises:
            SupersededError: What the index holds is newer.
        """
        ...


class ExampleStore(Protocol):
    """Examples of triage by tenant. Vectors come from the caller, which embeds many texts by one call."""

    async def version(self, tenant: str) -> str | None:
        """8 hex digits over all of a tenant's examples: others whenever one is added, changed or removed. None without any.

        Raises:
            OutageError: No answer.
        """
        ...

    async def nearest(self, tenant: str, vector: Sequence[float], limit: int) -> Sequence[Example]:
        """Examples of the tenant by cosine similarity, best first.

        Raises:
            OutageError, UnavailableError: No answer, or a failed search.
            RejectedError: One cannot be read.
        """
        ...

    async def remove(self, tenant: str, example_ids: Sequence[str]) -> int:
        """Take examples out. Returns how many of them there were. On disk on return.

        Raises:
            OutageError: No answer. They may be out; asking again is safe.
        """
        ...


class Embedder(Protocol):
    """Text to unit vectors."""

    @property
    def space(self) -> str:
        """What makes vectors comparable: the model's name and their length. Vectors of different spaces say nothing together."""
        ...

    async def embed(self, texts: Sequence[str], *, tenant: str) -> Sequence[Sequence[float]]:
        """One vector a text, in their order; `tenant` is whom they are counted to.

        Raises:
            BudgetExceededError: The tenant has spent what it may.
        """
        ...


class EffectClaim(Protocol):
    """What the ledger knows of an effect.

    `new`: ours to run. `done`: it ran, with `result`. `in_doubt`: somebody began it and left no result.
    """

    @property
    def state(self) -> Literal["new", "done", "in_doubt"]: ...
    @property
    def result(self) -> str | None: ...
    @property
    def ok(self) -> bool: ...


class EffectLedger(Protocol):
    """Which effects ran. A key is begun by one writer, with the fence of its lease."""

    async def begin(self, key: str, *, thread: str, fence: int) -> EffectClaim:
        """Claim an effect before it runs.

        Raises:
            FencedError: A newer lease exists. Nothing was claimed.
        """
        ...

    async def finish(self, key: str, *, result: str, ok: bool) -> None:
        """Record what came of it; the first record stands."""
        ...


class ToolService(Protocol):
    """A tenant's own back office, over HTTP."""

    async def call(
        self,
        operation: str,
        arguments: Mapping[str, Any],
        *,
        tenant: str,
        idempotency_key: str | None = None,
        timeout_s: float = 20.0,
    ) -> str:
        """Run one operation and return its text. A refusal is a text too, `Error: ...`; then nothing changed.

        Raises:
            UnavailableError: It could not be reached, or failed before an effect.
            TimedOutError: No answer in time. Whether there was an effect is unknown.
        """
        ...

    async def lookup(self, idempotency_key: str, *, tenant: str, timeout_s: float = 10.0) -> str | None:
        """The recorded result of a keyed operation, or None when it never ran."""
        ...
