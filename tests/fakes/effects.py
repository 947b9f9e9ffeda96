"""The effect ledger in memory."""

from collections.abc import Mapping

from infra.redis.effects import EffectClaim
from topics.errors import FencedError


class MemoryEffectLedger:
    """Claims in a dict, checked against fences that a fake of the leases owns."""

    def __init__(self, fences: Mapping[str, int]) -> None:
        self._fences = fences
        self.claims: dict[str, EffectClaim] = {}

    async def begin(self, key: str, *, thread: str, fence: int) -> EffectClaim:
        if self._fences.get(thread) != fence:
            raise FencedError(f"thread {thread} has a newer writer than fence {fence}")
        known = self.claims.get(key)
        if known is None:
            self.claims[key] = EffectClaim("in_doubt")
            return EffectClaim("new")
        return known

    async def finish(self, key: str, *, result: str, ok: bool) -> None:
        known = self.claims.get(key)
        if known is None or known.state != "done":
            self.claims[key] = EffectClaim("done", result, ok)
