"""Sentence vectors from any OpenAI-compatible endpoint."""

import math
from collections.abc import Sequence
from typing import Final

import openai
from langchain_openai import OpenAIEmbeddings
from pydantic import SecretStr

from infra.models.provider_errors import bad_reply, translated
from infra.tracing.model_calls import model_call
from infra.tracing.names import EMBEDDINGS
from topics.errors import ConfigError

BATCH: Final = 64


class ProviderEmbedder:
    """Text to unit vectors, over HTTP. `aclose` it when its loop ends.

    Args:
        dimensions: Floats a vector must have, because the index was made for so many.
        timeout_s: Seconds for each batch of at most 64 texts.
    """

    def __init__(self, *, base_url: str, api_key: str, model: str, timeout_s: float, dimensions: int) -> None:
        self._dimensions = dimensions
        self._http = openai.DefaultAsyncHttpxClient(timeout=timeout_s)
        self._client = OpenAIEmbeddings(
            base_url=base_url,
            api_key=SecretStr(api_key),
            model=model,
            timeout=timeout_s,
            max_retries=0,
            chunk_size=BATCH,
            # Counting tokens would download a vocabulary, and send token numbers that only one vendor understands.
            check_embedding_ctx_length=False,
            # Not every compatible endpoint answers in base64.
            model_kwargs={"encoding_format": "float"},
            http_async_client=self._http,
        )

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Turn texts into vectors, keeping their order.

        Returns:
            One vector of `dimensions` floats a text, unit length.

        Raises:
            RateLimitedError, UnavailableError, TimedOutError, OutageError, RejectedError: see `provider_errors.translated`.
            ConfigError: The model's vectors have another length than the index.
        """
        if not texts:
            return []
        with model_call(self._client.model, self._client.openai_api_base, operation=EMBEDDINGS, inputs=len(texts)), translated():
            vectors = await self._client.aembed_documents(list(texts))
        if len(vectors) != len(texts):
            raise bad_reply("the provider returned another number of vectors than texts")
        return [self._checked(vector) for vector in vectors]

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    def _checked(self, vector: Sequence[float]) -> list[float]:
        if len(vector) != self._dimensions:
            raise ConfigError(f"the embedding model gives {len(vector)} floats and the index holds {self._dimensions}")
        length = math.sqrt(math.fsum(number * number for number in vector))
        if not math.isfinite(length) or length == 0.0:
            raise bad_reply("the provider returned a vector without a direction")
        return [number / length for number in vector]
