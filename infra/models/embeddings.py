"""Sentence vectors from any OpenAI-compatible endpoint."""

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import anyio
import openai

from infra.models.provider_errors import bad_reply, translated
from infra.tracing.model_calls import model_call
from infra.tracing.names import EMBEDDINGS
from topics.errors import ConfigError

BATCH: Final = 64
WAITED_FOR: Final = 32
"""Texts at most of a request that somebody waits for: a search sends 8, a batch of tickets has 32. Articles send more."""


class Embedded(NamedTuple):
    """One unit vector a text, and the tokens that the provider counted; None where it did not."""

    vectors: Sequence[Sequence[float]]
    input_tokens: int | None


class ProviderEmbedder:
    """Text to unit vectors, over HTTP. `aclose` it when its loop ends.

    Args:
        dimensions: Floats a vector must have, because the index was made for so many.
        timeout_s: Seconds for a request of at most `WAITED_FOR` texts; a larger one has twice as many.
    """

    def __init__(self, *, base_url: str, api_key: str, model: str, timeout_s: float, dimensions: int) -> None:
        self.model = model
        self.space = f"{model}/{dimensions}"
        self._base_url = base_url
        self._dimensions = dimensions
        self._timeout_s = timeout_s
        # The client's own timeout is one for each read: a server that sends a byte now and then would never be late.
        self._client = openai.AsyncOpenAI(base_url=base_url, api_key=api_key, timeout=None, max_retries=0)

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Turn texts into vectors by one request, keeping their order.

        Args:
            texts: 1 to 64.

        Returns:
            One vector of `dimensions` floats a text, unit length.

        Raises:
            RateLimitedError, UnavailableError, TimedOutError, OutageError, RejectedError: see `provider_errors.translated`.
            ConfigError: The model's vectors have another length than the index.
        """
        within_s = self._timeout_s * (1 if len(texts) <= WAITED_FOR else 2)
        asking = model_call(self.model, self._base_url, operation=EMBEDDINGS, inputs=len(texts))
        with asking as call, translated(), anyio.fail_after(within_s):
            # Not every compatible endpoint answers in base64, which the SDK asks for by itself.
            reply = await self._client.embeddings.create(input=list(texts), model=self.model, encoding_format="float")
            vectors, input_tokens = [one.embedding for one in reply.data], _counted(getattr(reply, "usage", None))
            if input_tokens is not None:
                call.counted(input_tokens, 0)
        if len(vectors) != len(texts):
            raise bad_reply("the provider returned another number of vectors than texts")
        return Embedded([self._checked(vector) for vector in vectors], input_tokens)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    def _checked(self, vector: Sequence[float]) -> list[float]:
        if len(vector) != self._dimensions:
            raise ConfigError(f"the embedding model gives {len(vector)} floats and the index holds {self._dimensions}")
        length = math.sqrt(math.fsum(number * number for number in vector))
        if not math.isfinite(length) or length == 0.0:
            raise bad_reply("the provider returned a vector without a direction")
        return [number / length for number in vector]


def _counted(usage: Any) -> int | None:
    """Nulls and zeros are no count, and a budget must not read them as free."""
    tokens = getattr(usage, "prompt_tokens", None)
    return tokens if isinstance(tokens, int) and tokens > 0 else None
