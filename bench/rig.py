"""What every section stands on: the stack, many records at once, the figures of a process, and tables."""

import statistics
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio
import httpx
import orjson
from aiokafka import AIOKafkaProducer

from bench.gauges import cpu_s as cpu_s  # noqa: PLC0414 -- sections take what they stand on from here
from bench.gauges import rss_mb as rss_mb  # noqa: PLC0414 -- as above
from infra.kafka.connection import KafkaConnection
from infra.local.apache_kafka import apache_kafka_missing
from infra.local.stack import BrokerKind
from topics.errors import TimedOutError
from topics.records import OutboundRecord, RawRecord
from workers.demo.crew import Crew
from workers.demo.host import Host, hosted
from workers.demo.people import UNSIGNED

ASSIGNED_WITHIN_S: Final = 60.0


def choose_broker(wanted: BrokerKind | None) -> tuple[BrokerKind, str]:
    """The broker to measure on, and a sentence about it. Apache Kafka where it can run."""
    if wanted is not None:
        return wanted, f"Measured on {wanted}, as asked."
    missing = apache_kafka_missing()
    if missing is None:
        return "apache-kafka", "Measured on Apache Kafka."
    return "tansu", f"Measured on Tansu, whose figures are not those of a real broker: {missing}."


@asynccontextmanager
async def rig(broker: BrokerKind, **settings: Any) -> AsyncGenerator[Host]:
    """The embedded stack with an empty folder of its own, where unsigned decisions count. All of it is gone afterwards."""
    settings.setdefault("policy_file", str(UNSIGNED))
    with TemporaryDirectory(prefix="sluice-bench-", ignore_cleanup_errors=True) as folder:
        async with hosted(Path(folder), broker=broker, **settings) as host:
            yield host


class ModelControl:
    """The model server's script and journal."""

    def __init__(self, host: Host, http: httpx.AsyncClient) -> None:
        self._url = host.stack.endpoints.model_base_url.removesuffix("/v1") + "/control"
        self._http = http

    async def script(self, *, first_token_ms: float, tokens_per_s: float = 0.0, reply: str | None = None) -> None:
        """Forget everything; from now on answer at this pace, and always with `reply` if it is given."""
        await self._post("reset", {})
        await self._post("pace", {"first_token_ms": first_token_ms, "tokens_per_s": tokens_per_s})
        if reply is not None:
            await self._post("replies", {"match": "", "times": None, "text": reply})

    async def report(self) -> dict[str, Any]:
        """What was asked since the last script."""
        answer = await self._http.get(f"{self._url}/requests")
        return orjson.loads(answer.content)

    async def _post(self, what: str, body: dict[str, Any]) -> None:
        (await self._http.post(f"{self._url}/{what}", json=body)).raise_for_status()


@asynccontextmanager
async def model_control(host: Host) -> AsyncGenerator[ModelControl]:
    """Script the model server."""
    async with httpx.AsyncClient(timeout=30.0, trust_env=False) as http:
        yield ModelControl(host, http)


async def publish_all(connection: KafkaConnection, records: Sequence[OutboundRecord]) -> None:
    """Publish records as fast as one producer can, and wait until the broker has them all."""
    producer = AIOKafkaProducer(
        **connection.client_options(), acks="all", enable_idempotence=connection.idempotent, linger_ms=5, max_batch_size=262_144
    )
    await producer.start()
    try:
        sent = [await producer.send(record.topic, record.value, key=record.key, headers=list(record.headers)) for record in records]
        for acknowledgement in sent:
            await acknowledgement
    finally:
        await producer.stop()


def header(record: RawRecord, name: str) -> str:
    """A header's text, or nothing."""
    return next(((value or b"").decode() for key, value in record.headers if key == name), "")


async def until_assigned(members: Crew, names: Iterable[str], *, partitions: int, group: str = "") -> None:
    """Wait until these workers hold all partitions of their group between them.

    Args:
        group: What its name ends with, where the workers are members of several.

    Raises:
        TimedOutError: They did not join in time.
    """
    logs = [members.data_dir / "logs" / f"{name}.log" for name in names]
    with anyio.move_on_after(ASSIGNED_WITHIN_S):
        while True:
            held = [_last_assignment(log, group) for log in logs]
            if all(held) and sum(held) == partitions:
                return
            await anyio.sleep(0.1)
    raise TimedOutError(f"the workers did not share {partitions} partitions within {ASSIGNED_WITHIN_S:g} s")


def _last_assignment(log: Path, group: str) -> int:
    lines = log.read_bytes().splitlines() if log.exists() else []
    told = (orjson.loads(line) for line in reversed(lines) if b'"partitions_assigned"' in line)
    return next((one["count"] for one in told if one["group"].endswith(group)), 0)


def percentile(values: Sequence[float], percent: int) -> float:
    """The value that `percent` % of the values do not exceed; the largest where there are too few to tell."""
    if len(values) < 2:
        return max(values, default=0.0)
    return statistics.quantiles(sorted(values), n=100, method="inclusive")[percent - 1]


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print aligned columns, the first one to the left."""
    lines = [[_shown(cell) for cell in row] for row in rows]
    widths = [max(len(column), *(len(line[index]) for line in lines)) for index, column in enumerate(columns)]
    print(f"\n{title}")
    for line in (list(columns), *lines):
        first, *others = zip(line, widths, strict=True)
        print("  " + first[0].ljust(first[1]) + "".join("  " + cell.rjust(width) for cell, width in others), flush=True)


def _shown(cell: Any) -> str:
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 100 else f"{cell:.2f}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)
