"""What every index of vectors in Redis needs: a tenant's tag, vectors as bytes, and an index that is made once.

A tag compares without case and splits at commas, so the tenant goes in as the hex of a hash.
"""

import hashlib
import sys
from array import array
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, cast

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from infra.redis.client import outages
from topics.errors import ConfigError, OutageError, UnavailableError


async def create_index(client: Redis, command: Sequence[str | int], *, dimensions: int) -> None:
    """Create a search index if there is none; any number of processes may do it at once.

    Args:
        command: `FT.CREATE`, the index's name, and the rest.
        dimensions: Floats in a vector of it.

    Raises:
        ConfigError: There is one for vectors of another length.
        OutageError: Redis does not answer.
    """
    run = cast("Any", client).execute_command
    with failures():
        try:
            await run(*command)
        except ResponseError as error:
            if "already exists" not in str(error):
                raise
            found = _values_after("dim", await run("FT.INFO", command[1]))
            if found != [str(dimensions)]:
                why = f"search index {command[1]} holds vectors of {found} floats, not {dimensions}: use a new prefix"
                raise ConfigError(why) from error


def tenant_tag(tenant: str) -> str:
    """A tenant as a tag: 32 lower-case hex digits, which no tag rule changes.

    Raises:
        ValueError: There is no tenant. No query was sent.
    """
    if not tenant.strip():
        raise ValueError("a search needs a tenant")
    return hashlib.sha256(tenant.encode()).hexdigest()[:32]


@contextmanager
def failures() -> Generator[None]:
    """Translate what a search can answer; see `outages` for the rest."""
    try:
        with outages():
            yield
    except ResponseError as error:
        if "no such index" in str(error).lower() or "unknown index" in str(error).lower():
            raise OutageError("the search index is missing", code="search_index_missing") from error
        raise UnavailableError("the search failed", code="search_failed") from error


def blob(vector: Sequence[float]) -> bytes:
    """A vector as an index holds it."""
    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def numbers_of(stored: bytes) -> Sequence[float]:
    """The vector of a blob."""
    numbers = array("f", stored)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def text_of(value: Any) -> str:
    """What a reply holds, as text."""
    return value.decode() if isinstance(value, bytes) else str(value)


def _values_after(name: str, reply: Any) -> list[str]:
    """Every value that follows `name` in a nested reply, whichever its shape."""
    if isinstance(reply, Mapping):
        return _values_after(name, [part for pair in cast("Mapping[Any, Any]", reply).items() for part in pair])
    if not isinstance(reply, list | tuple):
        return []
    parts = list(cast("Sequence[Any]", reply))
    here = [
        text_of(after)
        for before, after in pairwise(parts)
        if not isinstance(before, list | tuple | Mapping) and text_of(before) == name
    ]
    return here + [value for part in parts for value in _values_after(name, part)]
