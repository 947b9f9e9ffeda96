"""Vectors that are kept, so that a figure does not wait for the model.

Those of the judged sets' passages lie in `bench/data`, for they cost four minutes of one processor (`bench.figures.ship_vectors`
makes them). A text that is in no file is embedded: when passages are cut in another way, a run takes longer and is right.
"""

import hashlib
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from flows.ports import Embedder

SHIPPED: Final = Path(__file__).parents[1] / "data" / "passages.f16"
CACHE: Final = Path(".cache/figures/vectors.f16")
_FLOATS: Final = struct.Struct("<384e")
_HASH: Final = 16
_WIDTH: Final = _HASH + _FLOATS.size


class KeptVectors:
    """An embedder that keeps what it embedded in `.cache`, which may be removed, and reads what is shipped.

    A file holds hashes of texts and their vectors in half precision, one after the other. `embedded` counts the texts that the
    model was asked for.
    """

    def __init__(self, embedder: Embedder, *, shipped: Path | None, cache: Path = CACHE) -> None:
        self.space = embedder.space
        self.embedded = 0
        self._embedder = embedder
        self._cache = cache
        self._known = {one: vector for path in (shipped, cache) if path and path.exists() for one, vector in _read(path)}
        self._new: list[bytes] = []
        self._asked: set[bytes] = set()

    async def embed(self, texts: Sequence[str], *, tenant: str) -> Sequence[Sequence[float]]:
        """One vector a text, in their order."""
        hashes = [hash_of(text) for text in texts]
        self._asked.update(hashes)
        missing = {one: text for one, text in zip(hashes, texts, strict=True) if one not in self._known}
        vectors = await self._embedder.embed(list(missing.values()), tenant=tenant)
        for one, vector in zip(missing, vectors, strict=True):
            self._known[one] = _FLOATS.pack(*vector)
            self._new.append(one)
        self.embedded += len(missing)
        return [_FLOATS.unpack(self._known[one]) for one in hashes]

    def save(self) -> None:
        """Add what is new to the cache."""
        self._cache.parent.mkdir(parents=True, exist_ok=True)
        with self._cache.open("ab") as file:
            file.writelines(one + self._known[one] for one in self._new)
        self._new.clear()

    def ship(self, path: Path) -> None:
        """Write all that was asked for to a file."""
        path.write_bytes(b"".join(one + self._known[one] for one in sorted(self._asked)))


def hash_of(text: str) -> bytes:
    """What a text is known by."""
    return hashlib.sha256(text.encode()).digest()[:_HASH]


def _read(path: Path) -> Iterator[tuple[bytes, bytes]]:
    stored = path.read_bytes()
    for at in range(0, len(stored) - _WIDTH + 1, _WIDTH):
        yield stored[at : at + _HASH], stored[at + _HASH : at + _WIDTH]
