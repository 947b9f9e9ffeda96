"""What is measured: one engine, one kind of handler, so many slots; and what came of it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final

import orjson

WITHIN_S: Final = 5.0
NO_OP_RECORDS: Final = 15_000
HOT_RECORDS: Final = 1_000
MOST_RECORDS: Final = 30_000


@dataclass(frozen=True, slots=True)
class Load:
    """The same for every engine. `slots` are handlers that may run at once; `handler_s` is how long each of them waits.

    `hot_keys` is how many keys the records share; 0 gives each its own, so that nothing but slots bounds concurrency.
    """

    handler_s: float
    slots: int
    hot_keys: int = 0

    @property
    def name(self) -> str:
        """As people say it."""
        if not self.handler_s:
            return "no-op"
        return f"{self.handler_s:g} s" if self.handler_s >= 1 else f"{self.handler_s * 1000:g} ms"

    @property
    def records(self) -> int:
        """Enough to see a steady rate: three rounds of every slot, or two seconds of them, whatever is longer."""
        if not self.handler_s:
            return NO_OP_RECORDS
        if self.hot_keys:
            return HOT_RECORDS
        return min(MOST_RECORDS, int(self.slots * max(3, 2 / self.handler_s)))

    @property
    def ideal_rate(self) -> float | None:
        """Records a second if nothing but the handlers took time; None for handlers that take none."""
        return min(self.slots, self.hot_keys or self.slots) / self.handler_s if self.handler_s else None


@dataclass(frozen=True, slots=True)
class Result:
    """How one run went: `records` handlers ended within `seconds` from the start of the first."""

    records: int
    seconds: float
    cpu_s: float
    rss_mb: float
    overlaps: int = 0

    @property
    def rate(self) -> float:
        """Records a second."""
        return self.records / self.seconds

    @property
    def cpu_us(self) -> float:
        """CPU microseconds of the whole process, all threads, for a record."""
        return self.cpu_s * 1e6 / max(self.records, 1)

    def as_json(self) -> bytes:
        """For the process that asked."""
        return orjson.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: bytes) -> "Result":
        """What a process said."""
        return cls(**orjson.loads(text))


@dataclass(frozen=True, slots=True)
class Row:
    """One engine under one load, over all rounds. `of_ours` is the median of each round's ratio, since a round shares its noise."""

    engine: str
    load: Load
    rate: float
    of_ours: float | None
    cpu_us: float
    rss_mb: float
    rounds: int

    @property
    def of_ideal(self) -> float | None:
        """1 when nothing but the handlers takes time."""
        return None if self.load.ideal_rate is None else self.rate / self.load.ideal_rate

    def as_json(self) -> dict[str, Any]:
        """For the file of figures."""
        return {
            "engine": self.engine,
            "handler": self.load.name,
            "slots": self.load.slots,
            "records_per_s": round(self.rate, 1),
            "share_of_ideal": _rounded(self.of_ideal),
            "of_ours": _rounded(self.of_ours),
            "cpu_us_per_record": round(self.cpu_us),
            "rss_mb": round(self.rss_mb),
            "rounds": self.rounds,
        }


def row(engine: str, load: Load, results: Sequence[Result], ours: Sequence[Result]) -> Row:
    """Sum up the rounds of one engine; `ours` are the same rounds of the engine that all are put beside."""
    ratios = [one.rate / mine.rate for one, mine in zip(results, ours, strict=False)]
    return Row(
        engine=engine,
        load=load,
        rate=median(one.rate for one in results),
        of_ours=median(ratios) if ratios else None,
        cpu_us=median(one.cpu_us for one in results),
        rss_mb=median(one.rss_mb for one in results),
        rounds=len(results),
    )


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 3)
