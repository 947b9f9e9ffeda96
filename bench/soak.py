"""python -m bench.soak --minutes 10: a steady load with failures through a real worker; its memory must stay flat.

Every 90 seconds the model fails all requests for 30, so that retries pile up to their bounds and go down again; one question in
twenty always fails, and one record a second is no event at all. At the end every record is done or dead. The last line is JSON.
"""

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import anyio
import httpx
from aiokafka import AIOKafkaProducer
from prometheus_client.parser import text_string_to_metric_families

from bench import rig
from infra.clock import SystemClock
from infra.local.ports import HOST, free_port
from topics.catalogue import QUERIES, Catalogue
from topics.envelope import encode
from topics.events import Payload, QueryAsked, TicketOpened
from topics.records import OutboundRecord
from workers.demo.crew import crew
from workers.demo.host import Host

QUERIES_PER_S: Final = 2
TICKETS_PER_S: Final = 5
POISON_PER_S: Final = 1
CYCLE_S: Final = 90.0
BAD_S: Final = 30.0
UNLUCKY: Final = "unlucky"
ALWAYS_FAILS: Final = {"kind": "status", "status": 500, "times": None}
FIRST_TOKEN_MS: Final = 200
MAX_BUFFERED: Final = 64
POLL_RECORDS: Final = 500  # what one poll may bring beyond a bound
MAX_FAILURES: Final = 9
READY_WITHIN_S: Final = 90.0
DRAINED_WITHIN_S: Final = 300.0
JUDGED_FROM_S: Final = 300.0  # a process that is younger still warms up
MAX_GROWTH: Final = 1.03
MAX_GROWTH_MB: Final = 4.0
WATCHED: Final = (
    "sluice_buffered_records",
    "sluice_buffered_bytes",
    "sluice_in_flight_records",
    "sluice_slots_used",
    "sluice_lanes",
    "sluice_lanes_waiting",
    "sluice_span_offsets",
)


@dataclass(frozen=True, slots=True)
class Sample:
    """The worker at one moment."""

    at_s: float
    rss_mb: float


@dataclass(slots=True)
class Soak:
    """What was sent and seen. `peaks` are the highest values of single series, by name."""

    sent: int = 0
    samples: list[Sample] = field(default_factory=list[Sample])
    peaks: Counter[str] = field(default_factory=Counter[str])
    not_alive: int = 0


def thirds(samples: Sequence[Sample]) -> tuple[float, float, float]:
    """The median resident memory in MiB of each third of the time."""
    size = max(len(samples) // 3, 1)
    parts = samples[:size], samples[size : 2 * size] or samples, samples[2 * size :] or samples
    first, middle, last = (statistics.median(one.rss_mb for one in part) for part in parts)
    return first, middle, last


def slope_mb_per_min(samples: Sequence[Sample]) -> float:
    """The growth of memory over the last two thirds, by least squares."""
    rest = samples[len(samples) // 3 :]
    if len(rest) < 2:
        return 0.0
    return statistics.linear_regression([one.at_s / 60 for one in rest], [one.rss_mb for one in rest]).slope


def is_flat(samples: Sequence[Sample]) -> bool | None:
    """Whether the last third holds as much as the middle one; None when the run was too short to tell."""
    if not samples or samples[-1].at_s - samples[0].at_s < JUDGED_FROM_S:
        return None
    _, middle, last = thirds(samples)
    return last <= middle * MAX_GROWTH + MAX_GROWTH_MB


def bounds_kept(peaks: Counter[str], *, slots: int) -> bool:
    """Whether nothing grew beyond its bound, and one poll."""
    return peaks["sluice_buffered_records"] <= MAX_BUFFERED + POLL_RECORDS and peaks["sluice_slots_used"] <= slots


def outages(log: bytes) -> dict[str, int]:
    """Why intake was paused, and how often, from the worker's log."""
    began = (json.loads(line) for line in log.splitlines() if b'"outage_began"' in line)
    return dict(Counter(one["why"] for one in began))


async def soak(seconds: float) -> dict[str, Any]:
    """Run it. Returns the figures."""
    broker, about = rig.choose_broker(None)
    print(about, flush=True)
    port = free_port()
    settings = {"http_port": port, "max_buffered_records": MAX_BUFFERED, "max_failures": MAX_FAILURES}
    client = httpx.AsyncClient(base_url=f"http://{HOST}:{port}", timeout=30.0, trust_env=False)
    async with rig.rig(broker, **settings) as host, crew(host.data_dir) as members, client as http:
        await members.start("soaked")
        await _until_ready(http)
        run, began_s = Soak(), time.monotonic()
        async with anyio.create_task_group() as tasks, sender(host) as send:
            tasks.start_soon(_watch, run, http, members.pid_of("soaked"), began_s)
            tasks.start_soon(_vary_the_model, host)
            await _load(run, send, Catalogue(host.settings.topic_prefix), until_s=began_s + seconds)
            tasks.cancel_scope.cancel()
        await _script(host)
        ended = await _drained(http, run.sent)
        why = outages((host.data_dir / "logs" / "soaked.log").read_bytes())
    return _report(run, ended, seconds=seconds, slots=host.settings.slots, broker=broker) | {"why": why}


async def _until_ready(http: httpx.AsyncClient) -> None:
    with anyio.fail_after(READY_WITHIN_S):
        while True:
            try:
                if (await http.get("/readyz")).is_success:
                    return
            except httpx.ConnectError:
                pass  # it has not begun to listen
            await anyio.sleep(0.2)


@asynccontextmanager
async def sender(host: Host) -> AsyncGenerator[Any]:
    """A function that sends a record and does not wait."""
    connection = host.settings.kafka()
    producer = AIOKafkaProducer(**connection.client_options(), acks="all", enable_idempotence=connection.idempotent, linger_ms=20)
    await producer.start()
    try:

        async def send(record: OutboundRecord) -> None:
            await producer.send(record.topic, record.value, key=record.key, headers=list(record.headers))

        yield send
    finally:
        await producer.stop()


async def _load(run: Soak, send: Any, catalogue: Catalogue, *, until_s: float) -> None:
    records = _records(catalogue)
    while (now_s := time.monotonic()) < until_s:
        for record in next(records):
            await send(record)
            run.sent += 1
        await anyio.sleep(max(now_s + 1 - time.monotonic(), 0))


def _records(catalogue: Catalogue) -> Iterator[list[OutboundRecord]]:
    """Second by second, for ever."""
    now, numbers = SystemClock().now(), count()

    def event(payload: Payload, number: int) -> OutboundRecord:
        named = {"tenant": f"tenant-{number % 7}", "source": "soak", "ordinal": "0", "event_id": f"soak-{number}"}
        return encode(payload, catalogue=catalogue, now=now, **named)

    while True:
        batch = [
            event(QueryAsked(thread_id=f"thread-{number}", text=f"Hello{', I am ' + UNLUCKY if number % 20 == 0 else ''}"), number)
            for number in (next(numbers) for _ in range(QUERIES_PER_S))
        ]
        batch += [
            event(TicketOpened(ticket_id=f"ticket-{number}", body="My card was stolen"), number)
            for number in (next(numbers) for _ in range(TICKETS_PER_S))
        ]
        batch += [OutboundRecord(catalogue.name(QUERIES), b"poison", b"\xff no event") for _ in range(POISON_PER_S)]
        yield batch


async def _vary_the_model(host: Host) -> None:
    while True:
        await _script(host, {**ALWAYS_FAILS, "match": UNLUCKY})
        await anyio.sleep(CYCLE_S - BAD_S)
        await _script(host, ALWAYS_FAILS)
        await anyio.sleep(BAD_S)


async def _script(host: Host, *faults: dict[str, Any]) -> None:
    url = host.stack.endpoints.model_base_url.removesuffix("/v1") + "/control"
    async with httpx.AsyncClient(timeout=30.0, trust_env=False) as http:
        (await http.post(f"{url}/reset", json={})).raise_for_status()
        (await http.post(f"{url}/pace", json={"first_token_ms": FIRST_TOKEN_MS, "tokens_per_s": 0})).raise_for_status()
        for fault in faults:
            (await http.post(f"{url}/faults", json=fault)).raise_for_status()


async def _watch(run: Soak, http: httpx.AsyncClient, pid: int, began_s: float) -> None:
    while True:
        for name, value in await _series(http):
            if name in WATCHED:
                run.peaks[name] = max(run.peaks[name], int(value))
        run.not_alive += (await http.get("/livez")).status_code != 200
        run.samples.append(Sample(time.monotonic() - began_s, rig.rss_mb(pid)))
        await anyio.sleep(1.0)


async def _series(http: httpx.AsyncClient) -> list[tuple[str, float]]:
    text = (await http.get("/metrics")).text
    return [(sample.name, sample.value) for family in text_string_to_metric_families(text) for sample in family.samples]


async def _sums(http: httpx.AsyncClient) -> Counter[str]:
    found: Counter[str] = Counter()
    for name, value in await _series(http):
        found[name] += int(value)
    return found


async def _drained(http: httpx.AsyncClient, sent: int) -> Counter[str]:
    """The figures once everything is done or dead, or when that takes too long."""
    seen: Counter[str] = Counter()
    with anyio.move_on_after(DRAINED_WITHIN_S):
        while True:
            seen = await _sums(http)
            if seen["sluice_records_done_total"] + seen["sluice_dead_letters_total"] >= sent:
                break
            await anyio.sleep(1.0)
    return seen


def _report(run: Soak, ended: Counter[str], *, seconds: float, slots: int, broker: str) -> dict[str, Any]:
    first, middle, last = thirds(run.samples)
    done, dead = ended["sluice_records_done_total"], ended["sluice_dead_letters_total"]
    return {
        "broker": broker,
        "minutes": round(seconds / 60, 2),
        "inputs": run.sent,
        "done": done,
        "dead": dead,
        "unaccounted": run.sent - done - dead,
        "retries": ended["sluice_retries_total"],
        "outages": ended["sluice_outages_total"],
        "times_not_alive": run.not_alive,
        "rss_mb": {"first": round(first, 1), "middle": round(middle, 1), "last": round(last, 1)},
        "rss_slope_mb_per_min": round(slope_mb_per_min(run.samples), 3),
        "flat": is_flat(run.samples),
        "bounds_kept": bounds_kept(run.peaks, slots=slots),
        "peaks": dict(sorted(run.peaks.items())),
    }


def main() -> None:
    """Read the command line; exit with 1 when memory grew, a bound was passed, or a record is missing."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=float, default=10.0)
    length.add_argument("--short", action="store_true", help="45 seconds: the machinery, not the memory")
    options = parser.parse_args()
    figures = anyio.run(soak, 45.0 if options.short else options.minutes * 60)
    print(json.dumps(figures), flush=True)
    good = figures["flat"] is not False and figures["bounds_kept"] and not figures["unaccounted"] and not figures["times_not_alive"]
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
