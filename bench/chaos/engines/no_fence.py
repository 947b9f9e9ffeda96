"""Control: ours, except that an effect begins under whatever fence stands: a zombie that wakes up gets its effect through (I7)."""

from dataclasses import replace

from bench.chaos import ours
from bench.chaos.perform import Perform
from bench.chaos.spec import Spec
from infra.redis.effects import EffectClaim, RedisEffectLedger


async def run(spec: Spec, perform: Perform) -> None:
    """Work as ours does, with that one difference."""
    await ours.run(spec, replace(perform, effects=UnfencedLedger(spec, perform)))


class UnfencedLedger(RedisEffectLedger):
    """A ledger that does not ask whether the writer is still the thread's."""

    def __init__(self, spec: Spec, perform: Perform) -> None:
        super().__init__(perform.redis, keys=spec.keys)
        self._redis = perform.redis
        self._fence_key = spec.keys.fence

    async def begin(self, key: str, *, thread: str, fence: int) -> EffectClaim:
        """Begin an effect under the newest fence, whoever asks."""
        newest = await self._redis.get(self._fence_key(thread))
        return await super().begin(key, thread=thread, fence=int(newest or fence))
