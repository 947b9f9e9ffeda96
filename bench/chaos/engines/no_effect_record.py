"""Control: ours, except that nobody writes down that an effect began or what came of it. After a kill it happens again (I2)."""

from dataclasses import replace
from itertools import count

from bench.chaos import ours
from bench.chaos.perform import Perform
from bench.chaos.spec import Spec
from infra.redis.effects import EffectClaim, RedisEffectLedger


async def run(spec: Spec, perform: Perform) -> None:
    """Work as ours does, with that one difference."""
    await ours.run(spec, replace(perform, effects=ForgetfulLedger(spec, perform)))


class ForgetfulLedger(RedisEffectLedger):
    """A ledger that asks whether the writer is still the thread's, and remembers nothing: every effect is a new one."""

    def __init__(self, spec: Spec, perform: Perform) -> None:
        super().__init__(perform.redis, keys=spec.keys)
        self._new = (f"{perform.who}:{number}" for number in count())

    async def begin(self, key: str, *, thread: str, fence: int) -> EffectClaim:
        """Begin an effect that nobody knows."""
        return await super().begin(f"{key}:{next(self._new)}", thread=thread, fence=fence)

    async def finish(self, key: str, *, result: str, ok: bool) -> None:
        """Forget it."""
