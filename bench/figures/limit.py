"""Tickets under a provider's limit: no call above it, hardly a moment lost, and only what failed or was in flight asked again.

Time runs four times as fast: 500 calls in any 15 s stand for 500 in any minute. The provider counts them in a sliding window and
answers 429 above it; two workers share the limit through Redis. The control has no limiter.
"""

import random
import re
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio
import httpx
import orjson

from bench import rig
from bench.figures.bounds import hold
from infra.local.data import datasets
from infra.redis.client import connect
from infra.redis.inbox import RedisInbox
from infra.redis.keys import Keys
from topics.catalogue import ARTICLES, DEAD_LETTERS, TICKETS, TRIAGE
from topics.envelope import Event, decode
from topics.errors import TimedOutError
from topics.events import TicketOpened, TicketTriaged
from topics.records import OutboundRecord, RawRecord
from workers.client import Client, open_client
from workers.demo.crew import crew
from workers.demo.host import Host, furnish

SCALE: Final = 4.0
A_MINUTE: Final = 500
WINDOW_S: Final = 60.0 / SCALE
PER_S: Final = A_MINUTE / WINDOW_S
TENANTS: Final = 3
FAILURES: Final = 12
TICKETS_FULL: Final = 10_000
TICKETS_SHORT: Final = 800
TICKETS_KILLED: Final = 300
TICKETS_CONTROL: Final = 1_000
ALLOWED_TIMES: Final = 1.05
# As many at once as the limit lets through in the second that a call may wait for its turn: more would be sent away and come back.
SLOTS: Final = 2
BATCH: Final = 8
# Always the same: here the limit is to hold up the work, and not the processors.
FOUND: Final = {"intent": "card_arrival", "priority": "normal", "needs_person": False, "summary": "A card has not come."}
WORKERS: Final = ("first", "second")
WITHIN_S: Final = 330.0
LOOK_EVERY_S: Final = 0.25
LIMIT: Final = {"*": {"requests": A_MINUTE, "window_s": WINDOW_S}}
COLUMNS: Final = (
    "",
    "tickets",
    "seconds",
    "the limit allows",
    "times",
    "429",
    "most in a window",
    "failed, re-run",
    "in flight",
    "re-run",
)

_TICKET: Final = re.compile(r"T-(\d+)\b")


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as the provider's journal has it."""

    ticket: int
    at_s: float
    took_s: float
    status: int


@dataclass(slots=True)
class Heard:
    """What was published: tickets that were triaged, and dead letters."""

    triaged: Counter[int] = field(default_factory=Counter[int])
    dead: int = 0

    def note(self, event: Event[Any]) -> None:
        """Take note of one event."""
        if isinstance(event.payload, TicketTriaged):
            self.triaged[int(event.payload.ticket_id)] += 1
        else:
            self.dead += 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run came to. `in_flight`: tickets that had been begun and were not settled when a worker was killed."""

    tickets: int
    asked: tuple[Asked, ...]
    planted: frozenset[int]
    in_flight: frozenset[int]
    heard: Heard

    @property
    def seconds(self) -> float:
        """From the first request to the end of the last."""
        return max(one.at_s + one.took_s for one in self.asked) - min(one.at_s for one in self.asked)

    @property
    def allowed_s(self) -> float:
        """What as many calls take at the provider's limit, those that were asked again included."""
        return len(self.asked) / PER_S

    @property
    def times(self) -> float:
        """How much longer than the limit allows."""
        return self.seconds / self.allowed_s

    @property
    def limited(self) -> int:
        """Answers that said 429."""
        return sum(one.status == 429 for one in self.asked)

    @property
    def calls(self) -> Counter[int]:
        """Ticket -> requests that the provider took up."""
        return Counter(one.ticket for one in self.asked if one.status != 429)

    @property
    def failed_right(self) -> int:
        """Planted failures that were asked about exactly once more, and once more again where a kill may have cut that off."""
        return sum(2 <= self.calls[one] <= 2 + (one in self.in_flight) for one in self.planted)

    @property
    def rerun(self) -> frozenset[int]:
        """Tickets without a planted failure that were asked about more than once."""
        return frozenset(one for one, count in self.calls.items() if count > 1) - self.planted


async def run(*, full: bool) -> dict[str, Any]:
    """Triage under the limit, with failures and a killed worker, and without a limiter. Prints a table.

    Raises:
        FigureError: A call above the limit, too slow, something asked again for no reason, or a control that saw nothing.
    """
    broker, said = rig.choose_broker(None)
    print(f"  {said} {A_MINUTE} calls in any {WINDOW_S:g} s: time runs {SCALE:g} times as fast.")
    async with rig.rig(broker) as host:
        if full:
            paced = killed = await _triage(host, "paced", TICKETS_FULL, kill=True, failures=FAILURES)
        else:
            paced = await _triage(host, "paced", TICKETS_SHORT, failures=FAILURES)
            killed = await _triage(host, "killed", TICKETS_KILLED, kill=True)
        control = await _triage(host, "control", TICKETS_CONTROL, limits={}, until_limited=True)
    runs = {"two workers": paced} | ({} if full else {"one of two killed": killed}) | {"control: no limiter": control}
    rig.print_table("Tickets under a provider's limit", COLUMNS, [_row(name, one) for name, one in runs.items()])
    return _judged(paced, killed, control, in_time=paced.times <= ALLOWED_TIMES or not full)  # half a minute is all start and tail


def _judged(paced: Outcome, killed: Outcome, control: Outcome, *, in_time: bool) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "limit_tickets": paced.tickets,
        "rate_limited": paced.limited + killed.limited,
        "rate_limited_control": control.limited,
        "limit_time_ratio": round(paced.times, 3),
        "limit_most_in_window": max(most_in_a_window(one.asked) for one in (paced, killed)),
        "limit_failures": FAILURES,
        "limit_failures_rerun_alone": paced.failed_right,
        "limit_in_flight": len(killed.in_flight),
        "limit_rerun": len(killed.rerun),
    }
    done = [one for one in (paced, killed) if len(one.heard.triaged) != one.tickets or one.heard.dead]
    return hold(
        figures,
        no_call_above_the_limit=figures["rate_limited"] == 0,
        time=in_time,
        only_failures_ran_again=figures["limit_failures_rerun_alone"] == FAILURES and paced.rerun <= paced.in_flight,
        only_what_was_in_flight_ran_again=killed.rerun <= killed.in_flight,
        every_ticket_triaged=not done,
        control=control.limited > 0,
    )


def _row(name: str, one: Outcome) -> tuple[Any, ...]:
    most = most_in_a_window(one.asked)
    failed = f"{one.failed_right} of {len(one.planted)}"
    return name, one.tickets, one.seconds, one.allowed_s, one.times, one.limited, most, failed, len(one.in_flight), len(one.rerun)


def most_in_a_window(asked: Sequence[Asked]) -> int:
    """The most requests that any window held, refused ones apart."""
    moments = sorted(one.at_s for one in asked if one.status != 429)
    most = first = 0
    for number, moment in enumerate(moments):
        while moments[first] <= moment - WINDOW_S:
            first += 1
        most = max(most, number - first + 1)
    return most


async def _triage(
    host: Host,
    name: str,
    count: int,
    *,
    kill: bool = False,
    failures: int = 0,
    limits: Mapping[str, Any] = LIMIT,
    until_limited: bool = False,
) -> Outcome:
    """One run with topics, group and keys of its own."""
    planted = frozenset(random.Random(5).sample(range(count), failures))
    with TemporaryDirectory(prefix="sluice-bench-", ignore_cleanup_errors=True) as folder:
        own = {
            "batch_size": BATCH,
            "ingestion_slots": SLOTS,
            "topic_prefix": f"{name}.",
            "group_prefix": name,
            "redis_prefix": name,
            "provider_limits": limits,
        }
        (Path(folder) / "logs").mkdir()
        place = await furnish(host.stack, Path(folder), **own)
        async with (
            provider(host, planted) as http,
            crew(place.data_dir) as members,
            open_client(place.settings, source="bench") as client,
        ):
            for worker in WORKERS:
                await members.start(worker, ["ingestion"])
            await rig.until_assigned(members, WORKERS, partitions=2 * (TICKETS.partitions + ARTICLES.partitions))
            heard, in_flight = Heard(), frozenset[int]()
            async with client.watch([TRIAGE, DEAD_LETTERS]) as events, anyio.create_task_group() as tasks:
                tasks.start_soon(_listen, events, heard)
                texts = [ticket.text for ticket in datasets.tickets()]
                records = [_record(client, number, texts[number % len(texts)]) for number in range(count)]
                claims = [_claim_id(record, client) for record in records]
                await rig.publish_all(place.settings.kafka(), records)
                if kill:
                    await _until(http, heard, count // 2)
                    await members.kill(WORKERS[0])
                    in_flight = await _begun(place, claims)
                await _until(http, heard, count, until_limited=until_limited)
                tasks.cancel_scope.cancel()
            asked = await journal(http)
            if until_limited:
                for worker in WORKERS:
                    await members.kill(worker)
    return Outcome(count, asked, planted, in_flight, heard)


def _record(client: Client, number: int, text: str) -> OutboundRecord:
    opened = TicketOpened(ticket_id=str(number), title=f"T-{number}", body=text)
    return client.record(opened, tenant=f"t{number % TENANTS}", event_id=f"t{number}")


def _claim_id(record: OutboundRecord, client: Client) -> str:
    raw = RawRecord(record.topic, 0, 0, record.key, record.value, record.headers)
    return decode(raw, catalogue=client.catalogue).claim_id


@asynccontextmanager
async def provider(host: Host, planted: frozenset[int]) -> AsyncGenerator[httpx.AsyncClient]:
    """The model server with an empty journal, the limit, and the failures; a client for its controls."""
    url = host.stack.endpoints.model_base_url.removesuffix("/v1") + "/control/"
    failures = [{"kind": "status", "status": 500, "match": f">T-{number}<"} for number in sorted(planted)]
    async with httpx.AsyncClient(base_url=url, timeout=30.0, trust_env=False) as http:
        limit = {"requests_per_window": A_MINUTE, "window_s": WINDOW_S}
        reply = {"match": "", "times": None, "text": orjson.dumps(FOUND).decode()}
        for what, body in (("reset", {}), ("limit", limit), ("faults", failures), ("replies", reply)):
            (await http.post(what, json=body)).raise_for_status()
        yield http
        (await http.post("reset", json={})).raise_for_status()


async def journal(http: httpx.AsyncClient) -> tuple[Asked, ...]:
    """Every request about a ticket."""
    answer = await http.get("requests")
    entries = orjson.loads(answer.content)["requests"]
    numbered = [(found, entry) for entry in entries if (found := _TICKET.search(entry["asked"]))]
    return tuple(Asked(int(found[1]), entry["started_s"], entry["took_ms"] / 1000, entry["status"]) for found, entry in numbered)


async def _begun(place: Host, claims: Sequence[str]) -> frozenset[int]:
    """Tickets that the group's claims say are being handled now."""
    settings = place.settings
    redis = connect(settings.redis_url, timeout_s=10.0)
    try:
        inbox = RedisInbox(redis, group=f"{settings.group_prefix}.ingestion", retention_s=1, keys=Keys(settings.redis_prefix))
        return frozenset(number for number, claim in enumerate(await inbox.look(claims)) if claim.state == "running")
    finally:
        await redis.aclose()


async def _listen(events: AsyncIterator[Event[Any]], heard: Heard) -> None:
    async for event in events:
        heard.note(event)


async def _until(http: httpx.AsyncClient, heard: Heard, count: int, *, until_limited: bool = False) -> None:
    """Wait until so many tickets are heard of, or the first 429.

    Raises:
        TimedOutError: It takes too long.
    """
    with anyio.move_on_after(WITHIN_S):
        while len(heard.triaged) + heard.dead < count:
            if until_limited and any(one.status == 429 for one in await journal(http)):
                return
            await anyio.sleep(LOOK_EVERY_S)
        return
    raise TimedOutError(f"{len(heard.triaged)} of {count} tickets were triaged within {WITHIN_S:g} s")
