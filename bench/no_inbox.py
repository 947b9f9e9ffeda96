"""The inbox of an engine that has none: what claims cost is measured against it, and what they prevent is shown by it."""

from collections.abc import Sequence
from typing import Literal

from infra.claims import Claim, Failure


class NoInbox:
    """Knows nothing of any record, and remembers nothing."""

    async def look(self, claim_ids: Sequence[str]) -> Sequence[Claim]:
        """Every record is new."""
        return [Claim() for _ in claim_ids]

    async def start(self, claim_ids: Sequence[str], *, owner: str) -> Sequence[int]:
        """Every start is the first."""
        del owner
        return [1] * len(claim_ids)

    async def settle(self, settled: Sequence[tuple[str, Literal["done", "dead"]]]) -> None:
        """Forget how they ended."""

    async def fail(self, failures: Sequence[Failure]) -> None:
        """Forget that they failed."""

    async def release(self, claim_ids: Sequence[str]) -> None:
        """There is nothing to take back."""
