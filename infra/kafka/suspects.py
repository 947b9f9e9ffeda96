"""Records that were running each time their worker died: one of them kills it, the others only ran beside it. Pure.

From some deaths on such a record is a suspect, and suspects run one at a time: the next death is then that of the one that ran,
and no neighbour is given up with it. Source: promise P1.
"""

from collections.abc import Iterable
from typing import Final

from infra.kafka.assignment import Work

LAST_CHANCES: Final = 2  # deaths that a record must be seen to cause without another suspect beside it


class Suspects:
    """Who of one process may run. `crash_limit` is the number of deaths after which a record is given up."""

    def __init__(self, *, crash_limit: int) -> None:
        self._from = max(crash_limit - LAST_CHANCES, 1)
        self._running: Work | None = None

    def may_start(self, work: Work) -> bool:
        """Whether a record may start now; when it may, and is a suspect, no other may until `ended`."""
        if work.claim.starts - work.claim.failures < self._from:
            return True
        if self._running is not None:
            return False
        self._running = work
        return True

    def ended(self, unit: Iterable[Work]) -> None:
        """These records run no more."""
        if self._running is not None and self._running in unit:
            self._running = None
