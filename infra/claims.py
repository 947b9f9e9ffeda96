"""The inbox: which records were started, how often, and which are settled."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

ClaimState = Literal["new", "running", "done", "dead"]


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed start, to be remembered until the record runs again."""

    claim_id: str
    due_at_ms: int
    failed_at_ms: int


@dataclass(frozen=True, slots=True)
class Claim:
    """What is known of one record. `starts` counts handler starts; `failures` those that ended in an error we saw.

    `due_at_ms` (epoch) is when a failed record may run again; `first_failed_at_ms` is the first failure's time.
    """

    state: ClaimState = "new"
    starts: int = 0
    failures: int = 0
    due_at_ms: int | None = None
    first_failed_at_ms: int | None = None

    def with_failure(self, failure: Failure) -> "Claim":
        """The claim after one more failed start."""
        first = self.first_failed_at_ms or failure.failed_at_ms
        return replace(self, failures=self.failures + 1, due_at_ms=failure.due_at_ms, first_failed_at_ms=first)


class Inbox(Protocol):
    """Claims of one consumer group. Every call takes a batch; every error is an OutageError and changes nothing."""

    async def look(self, claim_ids: Sequence[str]) -> Sequence[Claim]:
        """What is known of each, in order."""
        ...

    async def start(self, claim_ids: Sequence[str], *, owner: str) -> Sequence[int]:
        """Write one more start for each, before its handler runs. Returns the new counts; 0 for one that is settled."""
        ...

    async def settle(self, settled: Sequence[tuple[str, Literal["done", "dead"]]]) -> None:
        """Remember how each ended, for longer than its topic keeps it."""
        ...

    async def fail(self, failures: Sequence[Failure]) -> None:
        """Remember failed starts and when they are due."""
        ...

    async def release(self, claim_ids: Sequence[str]) -> None:
        """Take one start back from each: it was handed back, and is no crash."""
        ...
