"""The embedder behind a breaker and the meter: while its endpoint is out, what needs vectors waits, and stops nobody else."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from infra.clock import SystemClock
from infra.models.breaker import Breaker, BreakerPolicy
from infra.models.door import Door, Trial
from infra.models.embeddings import BATCH, ProviderEmbedder
from infra.models.metering import CHARS_PER_TOKEN, OURS, Call, Meter, Unmetered, Usage
from topics.errors import OutageError, RateLimitedError

EMBEDDINGS: Final = "embeddings"
TRIAL_TEXT: Final = "yes"


class GuardedEmbedder:
    """Text to unit vectors. There is no second endpoint: another model's vectors mean something else.

    Args:
        provider: Whose limit its calls count against.
    """

    def __init__(
        self,
        embedder: ProviderEmbedder,
        *,
        provider: str = EMBEDDINGS,
        meter: Meter | None = None,
        breaker: BreakerPolicy | None = None,
    ) -> None:
        self._provider = provider
        trial = Trial(self._call(embedder, [TRIAL_TEXT], tenant=OURS), partial(_try, embedder))
        self.door = Door(EMBEDDINGS, embedder, trial, SystemClock(), meter or Unmetered(), Breaker(breaker or BreakerPolicy()))

    @property
    def space(self) -> str:
        """What makes vectors comparable: the model and their length."""
        return self.door.client.space

    async def embed(self, texts: Sequence[str], *, tenant: str) -> Sequence[Sequence[float]]:
        """Turn texts into vectors, keeping their order, by one metered request for each 64.

        Args:
            tenant: Whose budget they count against.

        Raises:
            RateLimitedError: The endpoint is out, or the rate is limited. No intake pauses: tickets and most questions need no
                vector.
            BudgetExceededError: The tenant has spent what it may.
            UnavailableError, TimedOutError, RejectedError, ConfigError: As of `ProviderEmbedder`.
        """
        vectors: list[Sequence[float]] = []
        for start in range(0, len(texts), BATCH):
            vectors += await self._batch(texts[start : start + BATCH], tenant=tenant)
        return vectors

    async def _batch(self, texts: Sequence[str], *, tenant: str) -> Sequence[Sequence[float]]:
        embedder = self.door.client
        try:
            async with self.door.through(self._call(embedder, texts, tenant=tenant)) as account:
                embedded = await embedder.embed(texts)
                account.add(_usage(embedded.input_tokens))
                return embedded.vectors
        except OutageError as error:
            raise RateLimitedError(f"embeddings: {error}", retry_after_s=self.door.hope_s()) from error

    async def aclose(self) -> None:
        """Close the connections."""
        await self.door.client.aclose()

    def _call(self, embedder: ProviderEmbedder, texts: Sequence[str], *, tenant: str) -> Call:
        """An estimate on the high side: a quarter of the characters, and one more for each text."""
        return Call(self._provider, embedder.model, tenant, sum(map(len, texts)) // CHARS_PER_TOKEN + len(texts))


async def _try(embedder: ProviderEmbedder) -> Usage | None:
    return _usage((await embedder.embed([TRIAL_TEXT])).input_tokens)


def _usage(input_tokens: int | None) -> Usage | None:
    return None if input_tokens is None else Usage(input_tokens, 0)
