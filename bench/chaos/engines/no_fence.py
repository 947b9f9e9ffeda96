"""Control: ours, except that nobody tells a zombie that it was overtaken, and nobody asks. Its effect gets through (I7)."""

from dataclasses import replace
from typing import Any

from bench.chaos import ours
from bench.chaos.perform import Perform
from bench.chaos.spec import Spec
from infra.redis.effects import EffectClaim, RedisEffectLedger
from infra.redis.leases import RedisLeases
from topics.errors import FencedError, OutageError


async def run(spec: Spec, perform: Perform) -> None:
    """Work as ours does, with that one difference."""
    unfenced = replace(perform, leases=DeafLeases(spec, perform), effects=UnfencedLedger(spec, perform))
    await ours.run(spec, unfenced)


class DeafLeases(RedisLeases):
    """Leases whose holder does not hear that they are lost."""

    def __init__(self, spec: Spec, perform: Perform) -> None:
        super().__init__(perform.redis, lease_ms=int(spec.lease_s * 1000), keys=spec.keys)

    async def _renewed(self, held: Any) -> FencedError | OutageError | None:
        await super()._renewed(held)
        return None


class UnfencedLedger(RedisEffectLedger):
    """A ledger that does not ask whether the writer is still the thread's: whoever comes has the newest fence."""

    def __init__(self, spec: Spec, perform: Perform) -> None:
        super().__init__(perform.redis, keys=spec.keys)
        self._redis = perform.redis
        self._fence_key = spec.keys.fence

    async def begin(self, key: str, *, thread: str, fence: int) -> EffectClaim:
        """Begin an effect, whoever asks."""
        newest = await self._redis.get(self._fence_key(thread))
        return await super().begin(key, thread=thread, fence=int(newest or fence))
