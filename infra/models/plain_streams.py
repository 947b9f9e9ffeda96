"""The SDK's chat completions, whose streams give plain dicts.

The SDK walks a request through the types of its parameters, and builds a typed object of every chunk, which LangChain takes
apart again: together a third of all that a query costs. What is sent and what comes is the same without.
"""

from typing import Any, Final

import openai
from openai._types import RequestOptions  # the SDK has no public name for it

_PATH: Final = "/chat/completions"


class PlainStreams:
    """Stands where LangChain looks for `client.chat.completions`."""

    def __init__(self, client: openai.AsyncOpenAI) -> None:
        self._client = client

    @property
    def with_raw_response(self) -> Any:
        """Whole replies stay the SDK's own."""
        return self._client.chat.completions.with_raw_response

    async def create(self, *, extra_body: dict[str, Any] | None = None, **payload: Any) -> "openai.AsyncStream[object]":
        """Begin a stream.

        Raises:
            TypeError: The payload asks for no stream, or carries what belongs to the SDK's own call.
        """
        misplaced = payload.keys() & {"extra_headers", "extra_query", "timeout"}
        if payload.get("stream") is not True or misplaced:
            raise TypeError(f"only a stream without options of its own is asked for here ({', '.join(sorted(misplaced))})")
        return await self._client.post(
            _PATH,
            cast_to=object,
            body={**payload, **(extra_body or {})},
            options=RequestOptions(security={"bearer_auth": True}),
            stream=True,
            stream_cls=openai.AsyncStream[object],
        )
