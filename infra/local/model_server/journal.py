"""What was asked of the server, and how many requests were open at once."""

from collections import Counter, deque
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from infra.clock import SystemClock

KEPT: Final = 20_000
GONE: Final = 499  # the client left before the answer was complete


@dataclass(slots=True)
class Entry:
    """One request. `status` is 0 while it is open, and 499 when the client left; `inputs` are texts to embed."""

    at: str
    started_s: float
    path: str
    status: int = 0
    model: str = ""
    asked: str = ""
    inputs: int = 0
    stream: bool = False
    finish_reason: str | None = None
    reply_id: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    faults: list[str] = field(default_factory=list[str])
    took_ms: float = 0.0


class Journal:
    """The last 20,000 requests. Only the event loop writes it."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._entries: deque[Entry] = deque(maxlen=KEPT)
        self._total = 0
        self._in_flight = 0
        self._peak = 0

    @contextmanager
    def request(self, path: str) -> Generator[Entry]:
        """Write down one request for as long as it is open."""
        entry = Entry(at=self._clock.now().isoformat(), started_s=self._clock.monotonic_s(), path=path)
        self._entries.append(entry)
        self._total += 1
        self._in_flight += 1
        self._peak = max(self._peak, self._in_flight)
        try:
            yield entry
        finally:
            entry.status = entry.status or GONE
            entry.took_ms = round((self._clock.monotonic_s() - entry.started_s) * 1000, 3)
            self._in_flight -= 1

    def clear(self) -> None:
        """Forget what was; open requests stay counted."""
        self._entries.clear()
        self._total = 0
        self._peak = self._in_flight

    def report(self) -> dict[str, Any]:
        """Everything, as JSON."""
        return {
            "total": self._total,
            "in_flight": self._in_flight,
            "peak_in_flight": self._peak,
            "by_status": Counter(str(entry.status) for entry in self._entries),
            "requests": [asdict(entry) for entry in self._entries],
        }
