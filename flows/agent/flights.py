"""Effects under way in one run.

LangGraph cancels the siblings of a failed task. An effect that is cut off is in doubt, and some can only be cleared up by a
person; so a call that fails lets the effects beside it land before it fails the step. Each is bounded by its timeout.
"""

from collections.abc import Generator
from contextlib import contextmanager

import anyio


class Flights:
    """Counts effects that were begun and have not landed."""

    def __init__(self) -> None:
        self._aloft = 0
        self._all_landed: anyio.Event | None = None

    @contextmanager
    def one(self) -> Generator[None]:
        """Be aloft for as long as the block runs."""
        self._aloft += 1
        try:
            yield
        finally:
            self._aloft -= 1
            if self._aloft == 0 and self._all_landed is not None:
                self._all_landed.set()
                self._all_landed = None

    async def landed(self) -> None:
        """Wait until nothing is aloft."""
        while self._aloft:
            self._all_landed = self._all_landed or anyio.Event()
            await self._all_landed.wait()
