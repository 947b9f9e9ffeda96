"""Control: ours without the inbox. What was done and not yet committed is handled again after every kill and rebalance (I3)."""

from collections.abc import Sequence
from typing import Literal

from bench.chaos import ours
from bench.chaos.perform import Perform
from bench.chaos.spec import Spec
from infra.claims import Claim, Failure, Inbox


async def run(spec: Spec, perform: Perform) -> None:
    """Work as ours does, with that one difference."""
    await ours.run(spec, perform, ours.Guards(inbox=ForgetfulInbox))


class ForgetfulInbox:
    """An inbox that has never seen anything."""

    def __init__(self, inner: Inbox) -> None:
        del inner

    async def look(self, claim_ids: Sequence[str]) -> Sequence[Claim]:
        """All are new."""
        return [Claim() for _ in claim_ids]

    async def start(self, claim_ids: Sequence[str], *, owner: str) -> Sequence[int]:
        """Each start is the first."""
        del owner
        return [1] * len(claim_ids)

    async def settle(self, settled: Sequence[tuple[str, Literal["done", "dead"]]]) -> None:
        """Forget how they ended."""

    async def fail(self, failures: Sequence[Failure]) -> None:
        """Forget that they failed."""

    async def release(self, claim_ids: Sequence[str]) -> None:
        """There is nothing to take back."""
