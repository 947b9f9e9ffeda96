"""The embedder behind a breaker: while its endpoint is out, what needs vectors waits, spends nothing, and stops nobody else."""

from collections.abc import Sequence
from typing import Final

from infra.clock import SystemClock
from infra.models.breaker import Breaker, BreakerPolicy
from infra.models.door import Door
from infra.models.embeddings import ProviderEmbedder
from topics.errors import OutageError, RateLimitedError

EMBEDDINGS: Final = "embeddings"
TRIAL_TEXT: Final = "yes"


class GuardedEmbedder:
    """Text to unit vectors, as of `ProviderEmbedder`. There is no second one: another model's vectors mean something else."""

    def __init__(self, embedder: ProviderEmbedder, *, breaker: BreakerPolicy | None = None) -> None:
        self.door = Door(
            EMBEDDINGS, embedder, lambda: embedder.embed([TRIAL_TEXT]), SystemClock(), Breaker(breaker or BreakerPolicy())
        )

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Turn texts into vectors, keeping their order.

        Raises:
            RateLimitedError: The endpoint is out, or limits our rate. No intake pauses: tickets and most questions need no vector.
            UnavailableError, TimedOutError, RejectedError, ConfigError: As of `ProviderEmbedder`.
        """
        if not texts:
            return []
        try:
            ticket = await self.door.enter()
        except OutageError as error:
            raise self._waits(error) from error
        error: BaseException | None = None
        try:
            return await self.door.client.embed(texts)
        except OutageError as raised:
            error = raised
            raise self._waits(raised) from raised
        except BaseException as raised:
            error = raised
            raise
        finally:
            self.door.leave(ticket, error)

    async def aclose(self) -> None:
        """Close the connections."""
        await self.door.client.aclose()

    def _waits(self, error: OutageError) -> RateLimitedError:
        return RateLimitedError(f"embeddings: {error}", retry_after_s=self.door.hope_s())
