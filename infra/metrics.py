"""Figures for Prometheus, read when it asks: nothing on the path of a record knows of it.

Labels are groups, topics, partitions, stages and reason codes: words of ours. What a tenant wrote or is called is none (P11).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Final

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from infra.kafka.board import Board
from infra.kafka.figures import BUCKETS_S, Durations
from infra.models.door import Door
from infra.vitals import Member, Vitals

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
MAX_CODES: Final = 100  # of one group; a code that is made up at run time would otherwise fill the memory of whoever stores it

_CODE: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
_BY_GROUP: Final = ("group",)
_BY_TOPIC: Final = ("group", "topic")
_BY_PARTITION: Final = ("group", "topic", "partition")

Figure = tuple[Sequence[str], float]


class Exposition:
    """What `/metrics` says of one process."""

    def __init__(self, vitals: Vitals, *, effects_in_doubt: Callable[[], int] = lambda: 0, doors: Sequence[Door[Any]] = ()) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Figures(vitals, effects_in_doubt, doors))
        GCCollector(self._registry)
        PlatformCollector(self._registry)
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        """All figures in Prometheus' text format."""
        return generate_latest(self._registry)


class _Figures(Collector):
    """Reads the boards."""

    def __init__(self, vitals: Vitals, effects_in_doubt: Callable[[], int], doors: Sequence[Door[Any]]) -> None:
        self._vitals = vitals
        self._doors = doors
        self._effects_in_doubt = effects_in_doubt

    def collect(self) -> Iterator[Metric]:
        """Every figure of ours, each once."""
        members = self._vitals.members
        yield from self._of_the_process()
        yield from _counts([one.board for one in members])
        yield from _levels(members)
        yield from _of_partitions([one.board for one in members])
        yield _handler_seconds([one.board for one in members])
        yield from _of_providers(self._doors)

    def _of_the_process(self) -> Iterator[Metric]:
        vitals = self._vitals
        is_ready = not vitals.readiness()
        yield _gauge("sluice_ready", "Whether the process should be given work (1) or not (0).", (), [((), is_ready)])
        stalled = vitals.liveness()
        yield _gauge(
            "sluice_stalled",
            "Whether a stage of a group member stands still though it could move.",
            ("group", "stage"),
            [
                ((state.group, one.name), one.name in stalled.get(state.group, []))
                for state in vitals.states()
                for one in state.stages
            ],
        )
        yield _gauge(
            "sluice_dependency_up",
            "Whether a dependency serves (1) or not (0).",
            ("dependency",),
            [((name,), name not in vitals.down) for name in ("kafka", *vitals.ask)],
        )
        yield _gauge(
            "sluice_lag_records",
            "Records that the group has not committed, by the broker's word.",
            _BY_PARTITION,
            [((group, topic, str(number)), lag) for (group, topic, number), lag in vitals.lag.items()],
        )
        yield _counter(
            "sluice_effects_in_doubt",
            "Times that an effect was found begun and without a result.",
            (),
            [((), self._effects_in_doubt())],
        )


_COUNTS: Final[dict[str, tuple[str, Callable[[Board], float]]]] = {
    "sluice_records_admitted": ("Records that were taken from the broker.", lambda board: board.counters.admitted),
    "sluice_records_done": ("Records whose handler ended well.", lambda board: board.counters.handled),
    "sluice_retries": ("Failed handlers that will be tried again.", lambda board: board.counters.retried),
    "sluice_claim_hits": ("Records that were settled before, and were not run again.", lambda board: board.counters.skipped),
    "sluice_handed_back": ("Starts that were taken back, untried.", lambda board: board.counters.handed_back),
    "sluice_lease_losses": ("Handlers that lost their thread to another worker.", lambda board: board.counters.lease_losses),
    "sluice_commits": ("Commits that the broker took.", lambda board: board.counters.commits),
    "sluice_outages": ("Times that intake was paused because a dependency was down.", lambda board: board.counters.outages),
    "sluice_rebalances": ("Assignments that this member was given.", lambda board: board.counters.rebalances),
    "sluice_rebalance_seconds": (
        "Seconds between letting partitions go and being given others.",
        lambda board: board.counters.rebalance_s,
    ),
}


def _counts(boards: Sequence[Board]) -> Iterator[Metric]:
    for name, (text, read) in _COUNTS.items():
        yield _counter(name, text, _BY_GROUP, [((board.group,), read(board)) for board in boards])
    yield _counter(
        "sluice_dead_letters",
        "Dead letters that the broker acknowledged.",
        ("group", "topic", "code"),
        [figure for board in boards for figure in _dead_letters(board)],
    )


def _dead_letters(board: Board) -> Iterator[Figure]:
    by: dict[tuple[str, str], int] = {}
    for (topic, code), count in board.counters.dead_by.items():
        known = code if _CODE.fullmatch(code) and len(by) < MAX_CODES else "other"
        by[topic, known] = by.get((topic, known), 0) + count
    for (topic, code), count in by.items():
        yield (board.group, topic, code), count


def _levels(members: Sequence[Member]) -> Iterator[Metric]:
    boards = [one.board for one in members]

    def level(name: str, text: str, read: Callable[[Board], float]) -> Metric:
        return _gauge(name, text, _BY_GROUP, [((board.group,), read(board)) for board in boards])

    used = [((one.board.group,), one.snapshot()["running"]) for one in members]
    yield _gauge("sluice_slots_used", "Units of work that run.", _BY_GROUP, used)
    yield level("sluice_slots", "Units of work that may run at once.", lambda board: board.config.slots)
    yield level("sluice_in_flight_records", "Records between their start and their end.", lambda board: len(board.in_flight))
    yield level("sluice_assigned_partitions", "Partitions that are ours.", lambda board: len(board.assignments))
    yield level("sluice_outage", "Whether intake is paused (1): a dependency is down.", lambda board: not board.gate.is_open)
    yield level("sluice_oldest_unfinished_seconds", "How long the oldest unfinished record is in our hands.", _oldest_s)
    yield level(
        "sluice_commit_age_seconds",
        "Seconds since everything that was finished was committed; it grows while commits fail.",
        lambda board: board.clock.monotonic_s() - board.committed_at_s,
    )


def _oldest_s(board: Board) -> float:
    admitted = [next(iter(held.admitted_at_s.values())) for held in board.assignments.values() if held.admitted_at_s]
    return board.clock.monotonic_s() - min(admitted) if admitted else 0.0


def _of_partitions(boards: Sequence[Board]) -> Iterator[Metric]:
    held = [((board.group, one.topic, str(one.partition)), one) for board in boards for one in board.assignments.values()]
    yield _gauge(
        "sluice_buffered_records",
        "Records taken and not finished.",
        _BY_PARTITION,
        [(labels, one.buffered) for labels, one in held],
    )
    yield _gauge(
        "sluice_buffered_bytes",
        "Their size in bytes.",
        _BY_PARTITION,
        [(labels, one.buffered_bytes) for labels, one in held],
    )
    yield _gauge(
        "sluice_span_offsets",
        "Offsets from the lowest unfinished record to the last one taken.",
        _BY_PARTITION,
        [(labels, one.watermark.span()) for labels, one in held],
    )
    lanes = [((board.group, name), board, table) for board in boards for name, table in board.lanes.items()]
    yield _gauge("sluice_lanes", "Keys that have records in hand.", _BY_TOPIC, [(labels, one.lanes()) for labels, _, one in lanes])
    yield _gauge(
        "sluice_lanes_ready",
        "Keys whose next record could start, had it a slot.",
        _BY_TOPIC,
        [(labels, table.ready(board.clock.monotonic_s())) for labels, board, table in lanes],
    )
    yield _gauge(
        "sluice_lanes_waiting",
        "Keys whose next record waits for a retry, a lease or a provider.",
        _BY_TOPIC,
        [(labels, _waiting(board, labels[1])) for labels, board, _ in lanes],
    )


def _waiting(board: Board, name: str) -> int:
    lanes = board.lanes[name]
    running = sum(board.lanes_of(work) is lanes for work in board.in_flight)
    return max(lanes.lanes() - lanes.ready(board.clock.monotonic_s()) - running, 0)


def _of_providers(doors: Sequence[Door[Any]]) -> Iterator[Metric]:
    by = ("provider",)
    yield _gauge(
        "sluice_provider_out",
        "Whether a provider is left out (1) until a trial call goes well.",
        by,
        [((one.name,), one.is_out) for one in doors],
    )
    yield _counter(
        "sluice_provider_outages",
        "Times that a provider was left out.",
        by,
        [((one.name,), one.breaker.opened) for one in doors],
    )
    yield _counter(
        "sluice_provider_trials",
        "Trial calls to a provider that was left out.",
        by,
        [((one.name,), one.breaker.trials) for one in doors],
    )
    yield _counter(
        "sluice_provider_calls",
        "Calls for records, by what became of them; a call may go on to the next provider.",
        ("provider", "result"),
        [((one.name, result), count) for one in doors for result, count in one.calls.items()],
    )


def _handler_seconds(boards: Iterable[Board]) -> Metric:
    family = HistogramMetricFamily("sluice_handler_seconds", "From a start to the end of its handler.", labels=_BY_TOPIC)
    for board in boards:
        for topic, durations in board.counters.handler_s.items():
            family.add_metric((board.group, topic), _buckets(durations), durations.sum_s)
    return family


def _buckets(durations: Durations) -> list[tuple[str, float]]:
    bounds = [*(f"{bound:g}" for bound in BUCKETS_S), "+Inf"]
    return list(zip(bounds, map(float, accumulate(durations.counts)), strict=True))


def _gauge(name: str, text: str, labels: Sequence[str], figures: Iterable[Figure]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, figure in figures:
        family.add_metric(values, float(figure))
    return family


def _counter(name: str, text: str, labels: Sequence[str], figures: Iterable[Figure]) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for values, figure in figures:
        family.add_metric(values, float(figure))
    return family
