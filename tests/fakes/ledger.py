"""An effect ledger in memory, with the same rules as the real one."""

from typing import Any

from infra.redis.effects import EffectClaim
from topics.errors import FencedError


class FakeLedger:
    def __init__(self) -> None:
        self.records: dict[str, EffectClaim] = {}
        self.fences: dict[str, int] = {}

    async def begin(self, key: str, *, thread: str, fence: int) -> EffectClaim:
        if fence < self.fences.get(thread, 0):
            raise FencedError("a newer lease exists")
        self.fences[thread] = fence
        known = self.records.get(key)
        if known is None:
            self.records[key] = EffectClaim("in_doubt")
            return EffectClaim("new")
        return known

    async def finish(self, key: str, *, result: str, ok: bool) -> None:
        if self.records[key].state != "done":
            self.records[key] = EffectClaim("done", result=result, ok=ok)


class ForgetfulLedger(FakeLedger):
    """The negative control: every effect is new, so a re-run repeats it."""

    async def begin(self, key: str, *, thread: str, fence: int) -> EffectClaim:
        await super().begin(key, thread=thread, fence=fence)
        return EffectClaim("new")


class CrashError(BaseException):
    """The process dies here: nothing that runs in it may handle it."""


class CrashingLedger:
    """A ledger whose process dies at a named point, once."""

    def __init__(self, inner: Any, *, at: str) -> None:
        self.inner = inner
        self.at = at

    def _crash(self, point: str) -> None:
        if self.at == point:
            self.at = ""
            raise CrashError(point)

    async def begin(self, key: str, *, thread: str, fence: int) -> EffectClaim:
        self._crash("before claim")
        claim = await self.inner.begin(key, thread=thread, fence=fence)
        self._crash("after claim, before effect")
        return claim

    async def finish(self, key: str, *, result: str, ok: bool) -> None:
        self._crash("after effect, before record")
        await self.inner.finish(key, result=result, ok=ok)
        self._crash("after record, before checkpoint")
