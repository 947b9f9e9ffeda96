"""The engines side by side: the same broker, topic, records and handlers; a process, a group and a fresh start for each run.

All engines take their turn at one load before the next load comes, so that what disturbs the machine disturbs them alike. Where one
cannot run, the table says why.
"""

import sys
from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count, product
from pathlib import Path
from typing import Any, Final

from bench import rig
from bench.rivals.cassandra import build_cassandra
from bench.rivals.cell import MOST_RECORDS, WITHIN_S, Load, Result, Row, row
from bench.rivals.facts import FACTS
from bench.rivals.place import ENGINES
from infra.clock import SystemClock
from infra.local.processes import Server, ServerSpec, running
from infra.local.stack import BrokerKind
from topics.catalogue import QUERIES, TICKETS, Catalogue
from topics.envelope import encode
from topics.errors import ConfigError
from topics.events import Payload, QueryAsked, TicketOpened
from topics.records import OutboundRecord
from workers.demo.host import Host

OURS: Final = "Sluice, claims in Redis"
LOOP: Final = "aiokafka loop, nothing else"
ALONE: Final = "FastStream subscriber"
PROSODY: Final = "prosody-events"
MODULES: Final = {"faststream-concurrent-aiokafka": "faststream_concurrent_aiokafka", PROSODY: "prosody"}

LOADS: Final = tuple(Load(handler_s, slots) for handler_s, slots in product((0.0, 0.05, 1.0), (32, 256, 1000)))
QUICK_LOADS: Final = (Load(0.0, 256), Load(0.05, 256), Load(1.0, 1000))
HOT: Final = Load(0.02, 64, hot_keys=50)
ROUNDS: Final = 2
START_WITHIN_S: Final = 60.0
HOT_COLUMNS: Final = ("", "records/s", "of ideal", "began beside another of their key")
COLUMNS: Final = ("", "slots", "records/s", "of ideal", "x ours", "cpu us/record", "MiB")
WHAT_ELSE: Final = ("", "order per key", "killed", "a handler raises", "source")


@dataclass(frozen=True, slots=True)
class Arena:
    """What the processes share."""

    host: Host
    cassandra: str
    absent: dict[str, str]
    _numbers: Any

    async def measure(self, engine: str, load: Load) -> Result:
        """Run one engine in a process of its own, and end it as soon as its figures are there.

        Raises:
            ConfigError: It could not start, or ended, or said nothing in time.
        """
        name = f"rival-{next(self._numbers)}"
        out = self.host.data_dir / f"{name}.json"

        async def probe() -> str | None:
            return None if out.exists() else "no figures"

        # Prosody writes a line for much of what it does unless it is told not to.
        python = ["env", "PROSODY_LOG=error", sys.executable]
        command = [*python, "-m", "bench.rivals", engine, *self._arguments(name, load), "--out", str(out)]
        limit_s = START_WITHIN_S + WITHIN_S
        log = self.host.data_dir / "logs" / f"{name}.log"
        server = Server(ServerSpec(name=engine, command=command, log_path=log, probe=probe, start_timeout_s=limit_s))
        try:
            await server.start()
            return Result.from_json(out.read_bytes())
        finally:
            await server.kill()

    def _arguments(self, group: str, load: Load) -> list[str]:
        settings = self.host.settings
        topic = Catalogue(settings.topic_prefix).name(TICKETS if load.hot_keys else QUERIES)
        where = ["--bootstrap", settings.kafka().bootstrap, "--topic", topic, "--group", group]
        leans_on = ["--redis-url", settings.redis_url, "--cassandra", self.cassandra]
        size = ["--slots", str(load.slots), "--records", str(load.records)]
        return [*where, *leans_on, *size, "--handler-s", str(load.handler_s), "--within-s", str(WITHIN_S)]


async def run(broker: BrokerKind, *, quick: bool = False, rounds: int | None = None) -> dict[str, Any]:
    """Measure every engine under every load. Prints the tables."""
    loads = QUICK_LOADS if quick else LOADS
    async with _arena(broker) as arena:
        await _warm_up(arena)
        results, failed = await _play(arena, loads, rounds=rounds or (1 if quick else ROUNDS))
        hot, hot_failed = await _play(arena, (HOT,), rounds=1)
    failed |= hot_failed
    rows = [
        row(engine, load, results[engine, load], results[OURS, load])
        for load, engine in product(loads, ENGINES)
        if results[engine, load]
    ]
    order = {engine: hot[engine, HOT][0] for engine in ENGINES if hot[engine, HOT]}
    _print(rows, order, failed)
    return {
        "rows": [one.as_json() for one in rows],
        "order": {engine: {"records": one.records, "overlaps": one.overlaps} for engine, one in order.items()},
        "not_measured": failed,
        "facts": {engine: dict(zip(WHAT_ELSE[1:], facts, strict=True)) for engine, facts in FACTS.items()},
    }


async def _warm_up(arena: Arena) -> None:
    """Let Cassandra make its tables and compile itself on somebody's run that is not counted."""
    if PROSODY not in arena.absent:
        with suppress(ConfigError):
            await arena.measure(PROSODY, LOADS[1])


async def _play(arena: Arena, loads: Sequence[Load], *, rounds: int) -> tuple[dict[tuple[str, Load], list[Result]], dict[str, str]]:
    """What each engine showed under each load, and why what is missing is missing."""
    results: dict[tuple[str, Load], list[Result]] = defaultdict(list)
    failed = dict(arena.absent)
    for number, load in product(range(rounds), loads):
        for engine in _players(load, loads):
            if engine in arena.absent:
                continue
            try:
                results[engine, load].append(await arena.measure(engine, load))
            except ConfigError as error:
                failed[f"{engine}, {load.name}, {load.slots} slots, round {number + 1}"] = str(error)
        print(f"  round {number + 1} of {rounds}: {load.name}, {load.slots} slots", file=sys.stderr, flush=True)
    return results, failed


def _players(load: Load, loads: Sequence[Load]) -> list[str]:
    """Who has something to show: a plain subscriber has no slots, and the loop no handlers that wait, so once is enough."""
    first = next(one for one in loads if one.handler_s == load.handler_s)
    return [
        engine
        for engine in ENGINES
        if not (engine == ALONE and load is not first) and not (engine == LOOP and (load.handler_s or load is not first))
    ]


@asynccontextmanager
async def _arena(broker: BrokerKind) -> AsyncGenerator[Arena]:
    absent = {
        engine: "not installed: `make bench` brings the group `rivals`"
        for engine, module in MODULES.items()
        if not find_spec(module)
    }
    async with rig.rig(broker) as host, AsyncExitStack() as stack:
        await rig.publish_all(host.settings.kafka(), records(Catalogue(host.settings.topic_prefix)))
        address = ""
        if broker == "tansu":
            absent[PROSODY] = "librdkafka, which it stands on, cannot connect to Tansu"
        elif PROSODY not in absent:
            try:
                address = await _cassandra(stack, host.data_dir)
            except ConfigError as error:
                absent[PROSODY] = f"it wants Cassandra: {error}"
        yield Arena(host, address, absent, count(1))


async def _cassandra(stack: AsyncExitStack, data_dir: Path) -> str:
    server, address = build_cassandra(data_dir=data_dir)
    await stack.enter_async_context(running(server))
    return address


def records(catalogue: Catalogue) -> list[OutboundRecord]:
    """Queries with a key each, enough for the largest run and what is in hand then; and tickets of a few keys."""
    cold: list[Payload] = [QueryAsked(thread_id=f"thread-{number}", text="Hello") for number in range(MOST_RECORDS + 5_000)]
    hot: list[Payload] = [TicketOpened(ticket_id=f"t{number % HOT.hot_keys}", body="Hello") for number in range(2 * HOT.records)]
    now = SystemClock().now()
    return [
        encode(payload, catalogue=catalogue, tenant="bench", source="bench", now=now, ordinal="0", event_id=f"e{number}")
        for number, payload in enumerate([*cold, *hot])
    ]


def _print(rows: Sequence[Row], order: dict[str, Result], failed: dict[str, str]) -> None:
    for handler_s in dict.fromkeys(one.load.handler_s for one in rows):
        shown = [one for one in rows if one.load.handler_s == handler_s]
        rig.print_table(f"Handlers: {shown[0].load.name}", COLUMNS, [line for one in shown for line in _lines(one)])
    lines = [(engine, one.rate, one.rate / (HOT.ideal_rate or 1), one.overlaps) for engine, one in order.items()]
    rig.print_table(f"{HOT.records:,} records of {HOT.hot_keys} keys, handlers of 20 ms, {HOT.slots} slots", HOT_COLUMNS, lines)
    rig.print_table("What else they do", WHAT_ELSE, [(engine, *facts) for engine, facts in FACTS.items()])
    for what, why in failed.items():
        print(f"  not measured: {what}: {why}")


def _lines(one: Row) -> list[tuple[Any, ...]]:
    slots = "1" if one.engine == ALONE else "-" if one.engine == LOOP else one.load.slots
    line = (one.engine, slots, one.rate, _or_dash(one.of_ideal, one.engine), one.of_ours or "-", one.cpu_us, one.rss_mb)
    ideal = (
        [("ideal", one.load.slots, one.load.ideal_rate, 1.0, "-", "-", "-")] if one.engine == OURS and one.load.ideal_rate else []
    )
    return [*ideal, line]


def _or_dash(share: float | None, engine: str) -> float | str:
    return "-" if share is None or engine == ALONE else share
