"""Examples of triage in memory."""

import hashlib
from collections.abc import Sequence

from topics.errors import RejectedError
from topics.example import Example


class MemoryExamples:
    """Examples by tenant and id. `leaks` makes the search forget its filter; `error` fails every call."""

    def __init__(self, *, most: int = 500) -> None:
        self.most = most
        self.kept: dict[tuple[str, str], tuple[Example, Sequence[float]]] = {}
        self.leaks = False
        self.error: Exception | None = None

    async def add(self, tenant: str, examples: Sequence[Example], vectors: Sequence[Sequence[float]]) -> int:
        if len(examples) != len(vectors) or any(one.tenant != tenant for one in examples):
            raise ValueError("not the tenant's, or not a vector each")
        if len({one.example_id for one in examples}) < len(examples):
            raise ValueError("an id stands twice")
        await self.check_room(tenant, examples)
        new = sum((tenant, one.example_id) not in self.kept for one in examples)
        self.kept |= {(tenant, one.example_id): (one, vector) for one, vector in zip(examples, vectors, strict=True)}
        return new

    async def check_room(self, tenant: str, examples: Sequence[Example]) -> None:
        new = sum((tenant, one.example_id) not in self.kept for one in examples)
        if new and len(await self.of(tenant)) + new > self.most:
            raise RejectedError("too many", code="too_many_examples")

    async def remove(self, tenant: str, example_ids: Sequence[str]) -> int:
        if self.error:
            raise self.error
        return sum(self.kept.pop((self._named(tenant), one), None) is not None for one in example_ids)

    async def of(self, tenant: str) -> Sequence[Example]:
        owner = self._named(tenant)
        return sorted((one for one, _ in self.kept.values() if one.tenant == owner), key=lambda one: one.example_id)

    async def version(self, tenant: str) -> str | None:
        if self.error:
            raise self.error
        own = await self.of(tenant)
        return hashlib.sha256(repr(own).encode()).hexdigest()[:8] if own else None

    async def nearest(self, tenant: str, vector: Sequence[float], limit: int) -> Sequence[Example]:
        owner = self._named(tenant)
        if self.error:
            raise self.error
        rows = [row for row in self.kept.values() if row[0].tenant == owner or self.leaks]
        rows.sort(key=lambda row: -sum(a * b for a, b in zip(vector, row[1], strict=True)))
        return [one for one, _ in rows[:limit]]

    def _named(self, tenant: str) -> str:
        if not tenant.strip():
            raise ValueError("a search needs a tenant")
        return tenant
