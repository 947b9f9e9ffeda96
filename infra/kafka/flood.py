"""Too many dead letters at once point to us, not to the records. Pure."""

from collections import deque


class FloodGuard:
    """Watches how records end; a flood is a long run of dead letters, or too large a share of the last `window` records.

    Source: arroyo's dead-letter limits (ratio and run length).
    """

    def __init__(self, *, max_run: int = 100, max_share: float = 0.5, window: int = 400) -> None:
        self._max_run = max_run
        self._max_share = max_share
        self._recent: deque[bool] = deque(maxlen=window)
        self._run = 0

    def ended(self, *, dead: bool) -> bool:
        """Note one end. True when it makes a flood; the count then starts again."""
        self._run = self._run + 1 if dead else 0
        self._recent.append(dead)
        full = len(self._recent) == self._recent.maxlen
        if self._run < self._max_run and not (full and sum(self._recent) > self._max_share * len(self._recent)):
            return False
        self._run = 0
        self._recent.clear()
        return True
