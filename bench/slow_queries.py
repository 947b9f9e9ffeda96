"""1,000 slow queries on one topic: how concurrently they run, and what a query costs beside the bare graph.

The bare graph is the same agent, driven directly over the same Redis and model server: no Kafka, no claims, no leases.
"""

import time
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import anyio
import orjson

from bench import rig
from flows.agent.threads import ThreadRef
from infra.clock import SystemClock
from infra.collector import calm_collector
from infra.kafka.reading import follow
from infra.local.stack import BrokerKind
from topics.catalogue import ANSWERS, QUERIES, Catalogue
from topics.envelope import encode
from topics.errors import TimedOutError, UnavailableError
from topics.events import QueryAsked
from topics.records import OutboundRecord, RawRecord
from workers.demo.crew import crew
from workers.demo.host import Host
from workers.parts import build_parts

PROCESSES: Final = (1, 2, 4)
QUERIES_ASKED: Final = 1000
QUICK_QUERIES: Final = 400
SLOTS: Final = 200
MODEL_S: Final = 1.0
SLOWER_MODEL_S: Final = 10.0
SLOWER_QUERIES: Final = 600
WARM_UP: Final = 48
WITHIN_S: Final = 150.0
TENANT: Final = "bench"
ANSWER: Final = "Thank you for your message. We have looked into it, and everything on your account is as it should be now."

COLUMNS: Final = ("", "seconds", "ideal", "ideal/time", "in flight", "cpu ms/query", "cores busy", "MiB", "out of order")


@dataclass(frozen=True, slots=True)
class Question:
    """One query before it is published."""

    thread_id: str
    query_id: str

    @property
    def payload(self) -> QueryAsked:
        """What is asked: small talk, which takes one call of the model."""
        return QueryAsked(thread_id=self.thread_id, text=f"Hello, this is {self.query_id}. How are you today?", user_id=None)


@dataclass(frozen=True, slots=True)
class Measured:
    """One row. `cores` is CPU seconds per second: near 1 a process, it is the processor that limits, not waiting."""

    name: str
    queries: int
    model_s: float
    seconds: float
    peak_in_flight: int
    cpu_ms_per_query: float
    cores: float
    rss_mb: float
    out_of_order: int | None = None
    processes: int = 0

    @property
    def ideal_s(self) -> float:
        """Seconds that the model alone needs."""
        return self.queries * self.model_s / SLOTS

    @property
    def share_of_ideal(self) -> float:
        """1 when nothing but the model takes time."""
        return self.ideal_s / self.seconds

    def row(self) -> Sequence[Any]:
        """For the table."""
        order = "-" if self.out_of_order is None else self.out_of_order
        return (
            self.name,
            self.seconds,
            self.ideal_s,
            self.share_of_ideal,
            self.peak_in_flight,
            self.cpu_ms_per_query,
            self.cores,
            self.rss_mb,
            order,
        )


def questions(name: str, *, threads: int, each: int) -> list[Question]:
    """Queries in the order of publication: each thread's first, then each thread's second."""
    return [Question(f"{name}-{thread}", f"{name}-{thread}-{number}") for number in range(each) for thread in range(threads)]


def out_of_order(asked: Sequence[Question], completed: Sequence[str]) -> int:
    """How many threads were answered in another order than they asked, or not once for each query."""
    thread_of = {question.query_id: question.thread_id for question in asked}
    wanted, found = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for question in asked:
        wanted[question.thread_id].append(question.query_id)
    for query_id in completed:
        if query_id in thread_of:
            found[thread_of[query_id]].append(query_id)
    return sum(found[thread] != order for thread, order in wanted.items())


async def run(broker: BrokerKind, *, quick: bool = False) -> dict[str, Any]:
    """Measure with 1, 2 and 4 processes; quick means fewer queries, one row each. Prints a table each."""
    results: list[Measured] = []
    asked = QUICK_QUERIES if quick else QUERIES_ASKED
    for processes in PROCESSES:
        names = [f"worker-{number + 1}" for number in range(processes)]
        async with rig.rig(broker, slots=SLOTS // processes) as host, rig.model_control(host) as control:
            rows = [row async for row in _rows(host, control, names, count=asked, quick=quick)]
        results += rows
        title = f"{asked:,} queries, the model takes {MODEL_S:g} s, {SLOTS} slots in {processes} process(es)"
        rig.print_table(title, COLUMNS, [row.row() for row in rows])
    over_bare = round(results[1].cpu_ms_per_query / results[0].cpu_ms_per_query, 2)
    print(f"  our CPU per query is {over_bare:.2f} x the bare graph's")
    print(
        f"  {SLOTS} slots ask for {SLOTS / MODEL_S:g} queries a second; this CPU lets one process finish {_attainable(results[1])}"
    )
    return {"rows": [_as_json(row) for row in results], "cpu_over_bare": over_bare}


def _attainable(row: Measured) -> str:
    return f"{1000 / row.cpu_ms_per_query:.0f}" if row.cpu_ms_per_query else "as many as it takes"


async def _rows(
    host: Host, control: rig.ModelControl, names: Sequence[str], *, count: int, quick: bool
) -> AsyncGenerator[Measured]:
    if len(names) == 1:
        yield await _bare(host, control, count=count, model_s=MODEL_S)
    async with crew(host.data_dir) as members:
        for name in names:
            await members.start(name, ["query"])
        await rig.until_assigned(members, names, partitions=2 * QUERIES.partitions)
        pids = [members.pid_of(name) for name in names]
        await _through_kafka(host, control, pids, "warm-up", questions("w", threads=WARM_UP, each=1))
        yield await _through_kafka(host, control, pids, f"{count:,} threads", questions("a", threads=count, each=1))
        if quick:
            return
        yield await _through_kafka(
            host, control, pids, f"{SLOTS} threads x {count // SLOTS}", questions("b", threads=SLOTS, each=count // SLOTS)
        )
        if len(names) == 1:
            slower = questions("c", threads=SLOWER_QUERIES, each=1)
            yield await _through_kafka(host, control, pids, f"{SLOWER_QUERIES} threads, 10 s", slower, model_s=SLOWER_MODEL_S)


async def _bare(host: Host, control: rig.ModelControl, *, count: int, model_s: float) -> Measured:
    """The agent without anything around it, in this process, which does nothing else meanwhile."""
    asked = questions("bare", threads=count, each=1)
    async with build_parts(host.settings) as parts:
        for question in (*questions("cold", threads=WARM_UP, each=1), *asked):
            # The checkpointer wants to see the fence of a lease.
            await parts.redis.set(parts.keys.fence(ThreadRef(TENANT, question.thread_id).checkpoint_id), 1)

        async def ask(question: Question) -> None:
            thread = ThreadRef(TENANT, question.thread_id)
            run = parts.agent.ask(thread, query_id=question.query_id, text=question.payload.text, user_id=None, fence=1)
            async for _ in run:
                pass

        await control.script(first_token_ms=model_s * 1000, reply=ANSWER)
        await _each(questions("cold", threads=WARM_UP, each=1), ask)
        calm_collector()  # as a worker does
        await control.script(first_token_ms=model_s * 1000, reply=ANSWER)
        began_s, began_cpu_s = time.monotonic(), time.process_time()
        await _each(asked, ask)
        seconds, used_s = time.monotonic() - began_s, time.process_time() - began_cpu_s
    report = await control.report()
    return Measured(
        name="bare graph, no Kafka",
        queries=len(asked),
        model_s=model_s,
        seconds=seconds,
        peak_in_flight=report["peak_in_flight"],
        cpu_ms_per_query=used_s * 1000 / len(asked),
        cores=used_s / seconds,
        rss_mb=0.0,
    )


async def _each(asked: Sequence[Question], ask: Any) -> None:
    waiting = iter(asked)

    async def slot() -> None:
        for question in waiting:
            await ask(question)

    async with anyio.create_task_group() as slots:
        for _ in range(SLOTS):
            slots.start_soon(slot)


async def _through_kafka(
    host: Host, control: rig.ModelControl, pids: Sequence[int], name: str, asked: Sequence[Question], *, model_s: float = MODEL_S
) -> Measured:
    await control.script(first_token_ms=model_s * 1000, reply=ANSWER)
    catalogue = Catalogue(host.settings.topic_prefix)
    records = [_record(question, catalogue) for question in asked]
    async with _answers(host, catalogue) as answers:
        began_s, began_cpu_s = time.monotonic(), sum(map(rig.cpu_s, pids))
        completed: list[str] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(rig.publish_all, host.settings.kafka(), records)
            completed = await _completed(answers, count=len(asked))
        seconds, used_s = time.monotonic() - began_s, sum(map(rig.cpu_s, pids)) - began_cpu_s
    report = await control.report()
    return Measured(
        name=name,
        queries=len(asked),
        model_s=model_s,
        seconds=seconds,
        peak_in_flight=report["peak_in_flight"],
        cpu_ms_per_query=used_s * 1000 / len(asked),
        cores=used_s / seconds,
        rss_mb=sum(map(rig.rss_mb, pids)),
        out_of_order=out_of_order(asked, completed),
        processes=len(pids),
    )


def _record(question: Question, catalogue: Catalogue) -> OutboundRecord:
    return encode(
        question.payload,
        catalogue=catalogue,
        tenant=TENANT,
        source="bench",
        now=SystemClock().now(),
        ordinal="0",
        event_id=question.query_id,
    )


@asynccontextmanager
async def _answers(host: Host, catalogue: Catalogue) -> AsyncGenerator[AsyncIterator[RawRecord]]:
    async with follow(host.settings.kafka(), [catalogue.name(ANSWERS)]) as records, aclosing(records) as open_records:
        yield open_records


async def _completed(answers: AsyncIterator[RawRecord], *, count: int) -> list[str]:
    """The ids of completed queries in the order of their partitions, once there are as many different ones as asked."""
    completed: list[str] = []
    with anyio.move_on_after(WITHIN_S):
        async for record in answers:
            kind = rig.header(record, "ce_type")
            if kind == "answer.completed":
                completed.append(orjson.loads(record.value or b"{}")["query_id"])
            if kind == "answer.failed":
                raise UnavailableError("a query failed, so there is nothing to measure")
            if len(set(completed)) == count:
                return completed
    raise TimedOutError(f"{len(set(completed))} of {count} queries were answered within {WITHIN_S:g} s")


def _as_json(row: Measured) -> dict[str, Any]:
    return {
        "name": row.name,
        "processes": row.processes,
        "queries": row.queries,
        "model_seconds": row.model_s,
        "seconds": round(row.seconds, 2),
        "ideal_seconds": round(row.ideal_s, 2),
        "share_of_ideal": round(row.share_of_ideal, 3),
        "peak_in_flight": row.peak_in_flight,
        "cpu_ms_per_query": round(row.cpu_ms_per_query, 2),
        "cores_busy": round(row.cores, 2),
        "rss_mb": round(row.rss_mb, 1),
        "threads_out_of_order": row.out_of_order,
    }
