"""A checkpointer whose process dies at a chosen write."""

from typing import Any

from langgraph.checkpoint.memory import InMemorySaver

from tests.fakes.ledger import CrashError


class CrashingSaver(InMemorySaver):
    """Dies before, or after, the write number `at`; 0 never dies. `count` counts writes."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.at = 0
        self.after = False
        self.count = 0

    def plan(self, at: int, *, after: bool) -> None:
        self.at, self.after, self.count = at, after, 0

    def _begin(self) -> bool:
        self.count += 1
        is_now = self.count == self.at
        if is_now and not self.after:
            raise CrashError(f"before write {self.at}")
        if self.at and self.count > self.at:
            # A dead process writes nothing more, whatever its other tasks still try.
            raise CrashError("already dead")
        return is_now

    async def aput(self, *args: Any, **kwargs: Any) -> Any:
        is_now = self._begin()
        result = super().put(*args, **kwargs)
        self._end(is_now=is_now)
        return result

    async def aput_writes(self, *args: Any, **kwargs: Any) -> None:
        is_now = self._begin()
        super().put_writes(*args, **kwargs)
        self._end(is_now=is_now)

    def _end(self, *, is_now: bool) -> None:
        if is_now:
            raise CrashError(f"after write {self.at}")
