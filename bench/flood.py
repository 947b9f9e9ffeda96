"""From a decision to the tool that it lets run, alone and while tickets flood ingestion: people must not wait behind machines.

Ingestion is a process of its own with a lower priority, as it is in production where they share a machine; here it shares the
broker, Redis and two processors with everybody. The model server stands for a provider elsewhere, so it takes what is left.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from bench import latency, rig
from infra.kafka.reading import scan
from infra.local.stack import MODEL_SERVER, BrokerKind
from infra.priority import lower_session
from topics.catalogue import DECISIONS, QUERIES, TIMERS, TRIAGE, Catalogue
from topics.errors import TimedOutError
from topics.events import TicketOpened
from topics.records import OutboundRecord
from workers.client import Client, open_client
from workers.demo.crew import Crew, crew
from workers.demo.host import Host

TICKETS: Final = 50_000
DECIDED: Final = 200
QUICK_TICKETS: Final = 20_000
QUICK_DECIDED: Final = 60
INGESTION_NICE: Final = 19
MODEL_NICE: Final = 19
QUERY: Final = "query-and-approvals"
INGESTION: Final = "ingestion"


async def run(broker: BrokerKind, *, quick: bool = False) -> dict[str, Any]:
    """Measure both. Prints the table.

    Raises:
        TimedOutError: The flood was over before the decisions were, so nothing was shown.
    """
    tickets, decided = (QUICK_TICKETS, QUICK_DECIDED) if quick else (TICKETS, DECIDED)
    calm, flooded = ([f"{name}-{number}" for number in range(decided + latency.WARM_UP)] for name in ("calm", "flooded"))
    async with rig.rig(broker) as host, crew(host.data_dir) as members:
        _take_what_is_left(host.stack.pid_of(MODEL_SERVER))
        await _start(members)
        async with open_client(host.settings, source="bench") as client, latency.watching(client) as witness:
            await latency.wait_for_requests(client, witness, [*calm, *flooded])
            alone = await latency.decide(host, client, witness, calm)
            await rig.publish_all(host.settings.kafka(), _tickets(client, tickets))
            before = await _triaged(host)
            under = await latency.decide(host, client, witness, flooded)
            after = await _triaged(host)
        await members.kill(INGESTION)  # what is left of the flood need not be drained
    if not before < after < tickets:
        raise TimedOutError(f"no flood while decisions were made: {before}, then {after} of {tickets} tickets were triaged")
    return _report(alone, under, tickets=tickets, triaged=after - before)


async def _start(members: Crew) -> None:
    await members.start(QUERY, ["query", "approvals"])
    await members.start(INGESTION, ["ingestion"], nice=INGESTION_NICE)
    await rig.until_assigned(members, [QUERY], partitions=2 * QUERIES.partitions, group=".query")
    await rig.until_assigned(members, [QUERY], partitions=2 * (DECISIONS.partitions + TIMERS.partitions), group=".approvals")


def _take_what_is_left(pid: int) -> None:
    lower_session(pid, MODEL_NICE)
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.setpriority(os.PRIO_PROCESS, int(thread.name), MODEL_NICE)


def _tickets(client: Client, count: int) -> list[OutboundRecord]:
    return [
        client.record(
            TicketOpened(ticket_id=f"T-{number}", body="My card was stolen, block it."), tenant="flood", event_id=f"t{number}"
        )
        for number in range(count)
    ]


async def _triaged(host: Host) -> int:
    found = 0
    async with scan(host.settings.kafka(), [Catalogue(host.settings.topic_prefix).name(TRIAGE)]) as records:
        async for _ in records:
            found += 1
    return found


def _report(alone: Sequence[float], under: Sequence[float], *, tickets: int, triaged: int) -> dict[str, Any]:
    ratios = {
        name: round(rig.percentile(under, percent) / rig.percentile(alone, percent), 2)
        for name, percent in (("p50", 50), ("p99", 99))
    }
    rows = [("alone", *latency.figures(alone)), (f"while {tickets:,} tickets flood ingestion", *latency.figures(under))]
    rig.print_table("Decision published -> tool runs", latency.COLUMNS, rows)
    print(f"  under the flood: p50 x {ratios['p50']}, p99 x {ratios['p99']}; {triaged:,} tickets were triaged meanwhile")
    return {
        "alone_ms": latency.named(alone),
        "flooded_ms": latency.named(under),
        "ratios": ratios,
        "tickets": tickets,
        "triaged_meanwhile": triaged,
    }
