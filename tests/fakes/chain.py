"""A chain of outcomes in memory."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from infra.redis.chain import Head
from topics.chain import GENESIS, Outcome, content_of, linked

AT = datetime(2026, 11, 30, 12, tzinfo=UTC)


@dataclass
class MemoryAuditChain:
    """What outlives processes: every outcome as it was linked, and what is not told."""

    links: dict[str, dict[str, Outcome]] = field(default_factory=dict[str, dict[str, Outcome]])
    open: dict[tuple[str, int], tuple[str, Outcome]] = field(default_factory=dict[tuple[str, int], tuple[str, Outcome]])

    async def append(self, tenant: str, outcome: Outcome, *, cause: str) -> Outcome:
        links, content = self.links.setdefault(tenant, {}), content_of(outcome)
        if content not in links:
            last = next(reversed(links.values()), None)
            previous = last.chain.digest if last and last.chain else GENESIS
            placed = linked(outcome, tenant=tenant, number=len(links) + 1, previous=previous, at=AT)
            links[content] = placed
            self.open[tenant, len(links)] = (cause, placed)
        return links[content]

    async def untold(self, tenant: str, *, cause: str) -> Sequence[Outcome]:
        found = {number: one for (owner, number), (by, one) in self.open.items() if (owner, by) == (tenant, cause)}
        return [found[number] for number in sorted(found)]

    async def told(self, tenant: str, outcome: Outcome) -> None:
        if outcome.chain:
            self.open.pop((tenant, outcome.chain.number), None)

    async def heads(self) -> dict[str, Head]:
        found: dict[str, Head] = {}
        for tenant, links in self.links.items():
            untold = frozenset(number for owner, number in self.open if owner == tenant)
            last = list(links.values())[-1].chain
            assert last is not None
            found[tenant] = Head(last.number, last.digest, untold)
        return found
