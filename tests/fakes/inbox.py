"""The inbox in memory."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from infra.claims import Claim, Failure
from topics.errors import OutageError


class MemoryInbox:
    """Claims in a dict. Set `down` to let every call fail before it changes anything."""

    def __init__(self) -> None:
        self.claims: dict[str, Claim] = {}
        self.owners: dict[str, str] = {}
        self.down = False

    async def look(self, claim_ids: Sequence[str]) -> Sequence[Claim]:
        self._refuse_when_down()
        return [self._known(claim_id) for claim_id in claim_ids]

    async def start(self, claim_ids: Sequence[str], *, owner: str) -> Sequence[int]:
        self._refuse_when_down()
        self.owners |= dict.fromkeys(claim_ids, owner)
        return [self._start(claim_id) for claim_id in claim_ids]

    async def settle(self, settled: Sequence[tuple[str, Literal["done", "dead"]]]) -> None:
        self._refuse_when_down()
        self.claims |= {claim_id: Claim(state=state) for claim_id, state in settled}

    async def fail(self, failures: Sequence[Failure]) -> None:
        self._refuse_when_down()
        for failure in failures:
            claim = self._known(failure.claim_id)
            if claim.state == "running":
                self.claims[failure.claim_id] = claim.with_failure(failure)

    async def release(self, claim_ids: Sequence[str]) -> None:
        self._refuse_when_down()
        for claim_id in claim_ids:
            claim = self._known(claim_id)
            if claim.state == "running":
                self.claims[claim_id] = replace(claim, starts=claim.starts - 1)
                if claim.starts <= 1:
                    del self.claims[claim_id]

    def _known(self, claim_id: str) -> Claim:
        return self.claims.get(claim_id, Claim())

    def _start(self, claim_id: str) -> int:
        claim = self._known(claim_id)
        if claim.state in {"done", "dead"}:
            return 0
        self.claims[claim_id] = replace(claim, state="running", starts=claim.starts + 1, due_at_ms=None)
        return claim.starts + 1

    def _refuse_when_down(self) -> None:
        if self.down:
            raise OutageError("the inbox is down")
