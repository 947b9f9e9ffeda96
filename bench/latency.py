"""Two waits that people feel: from a decision to the tool that it lets run, and from the model's first token to a reader.

One process with the query and the approval worker, lightly loaded. The back office's journal says when a tool ran, the model
server's when a first token was due; all clocks are this machine's.
"""

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import anyio
import httpx

from bench import rig
from infra.local.data import datasets
from infra.local.stack import BrokerKind
from topics.catalogue import ANSWERS, DECISIONS, OUTCOMES, QUERIES, REQUESTS, TIMERS
from topics.errors import TimedOutError
from topics.events import AnswerDelta, ApprovalDecided, QueryAsked
from workers.client import Client, open_client
from workers.demo.crew import crew
from workers.demo.host import Host
from workers.demo.witness import Witness

DECISIONS_MADE: Final = 200
QUESTIONS_ASKED: Final = 300
WARM_UP: Final = 10
PAUSE_S: Final = 0.1
FIRST_TOKEN_MS: Final = 300.0
TOKENS_PER_S: Final = 60.0
WITHIN_S: Final = 120.0
ANSWER: Final = "Thank you for your message. We have looked into it, and everything on your account is as it should be now."
COLUMNS: Final = ("milliseconds", "count", "p50", "p95", "p99", "max")


async def run(broker: BrokerKind) -> dict[str, Any]:
    """Measure both. Prints the table."""
    async with rig.rig(broker) as host, rig.model_control(host) as control, crew(host.data_dir) as members:
        await members.start("worker", ["query", "approvals"])
        await rig.until_assigned(members, ["worker"], partitions=2 * QUERIES.partitions, group=".query")
        await rig.until_assigned(members, ["worker"], partitions=2 * (DECISIONS.partitions + TIMERS.partitions), group=".approvals")
        async with open_client(host.settings, source="bench") as client:
            decisions = await _decisions(host, client)
            deltas = await first_deltas(client, control, count=QUESTIONS_ASKED)
    rows = [("decision published -> tool runs", decisions), ("first model token -> first delta read", deltas)]
    rig.print_table("Latency, one process, about 10 a second", COLUMNS, [(name, *figures(times)) for name, times in rows])
    return {name: named(times) for name, times in (("decision_to_tool_ms", decisions), ("first_token_to_delta_ms", deltas))}


def figures(times: Sequence[float]) -> tuple[Any, ...]:
    """Cells for `COLUMNS`."""
    return len(times), *(rig.percentile(times, percent) for percent in (50, 95, 99)), max(times)


def named(times: Sequence[float]) -> dict[str, float]:
    """The same for the file of figures."""
    return dict(zip(COLUMNS[1:], (round(figure, 2) for figure in figures(times)), strict=True))


async def _decisions(host: Host, client: Client) -> list[float]:
    tenants = [f"shop-{number}" for number in range(DECISIONS_MADE + WARM_UP)]
    async with watching(client) as witness:
        await wait_for_requests(client, witness, tenants)
        return await decide(host, client, witness, tenants)


async def wait_for_requests(client: Client, witness: Witness, tenants: Sequence[str]) -> None:
    """Ask for the one change of a retail task in each tenant, until every one of them waits for a person.

    Raises:
        TimedOutError: Not all of them came to that.
    """
    task = next(task for task in datasets.retail_tasks() if sum(action.mutates for action in task.actions) == 1)
    for tenant in tenants:
        query = QueryAsked(thread_id=tenant, text=task.instruction, user_id=task.user_id)
        await client.publish(query, tenant=tenant, event_id=f"task-{tenant}")
    await witness.until(lambda: len(witness.requests) == len(tenants), within_s=WITHIN_S, waiting_for="every request")


async def decide(host: Host, client: Client, witness: Witness, tenants: Sequence[str]) -> list[float]:
    """Approve each tenant's change at a steady pace. Returns milliseconds until it was made, without those of the warm-up.

    Raises:
        TimedOutError: Not all were made.
    """
    published_at: dict[str, datetime] = {}
    before, wanted = len(witness.executed), set(tenants)
    for tenant, request in [one for one in witness.requests.values() if one[0] in wanted]:
        decided = ApprovalDecided(
            approval_id=request.approval_id,
            thread_id=request.thread_id,
            decision="approve",
            args_digest=request.args_digest,
            approver="bench",
        )
        published_at[tenant] = datetime.now(UTC)
        await client.publish(decided, tenant=tenant, event_id=f"yes-{request.approval_id}")
        await anyio.sleep(PAUSE_S)
    await witness.until(lambda: len(witness.executed) == before + len(tenants), within_s=WITHIN_S, waiting_for="every change")
    ran_at = await _effects(host, list(published_at)[WARM_UP:])
    return [(at - published_at[tenant]) / timedelta(milliseconds=1) for tenant, at in ran_at.items()]


async def _effects(host: Host, tenants: list[str]) -> dict[str, datetime]:
    """When each tenant's change was made, by the back office's own journal."""
    found: dict[str, datetime] = {}
    async with httpx.AsyncClient(base_url=host.stack.endpoints.back_office_url, trust_env=False) as http:
        for tenant in tenants:
            entries = (await http.get(f"/v1/{tenant}/journal")).json()
            if len(entries) != 1:
                raise TimedOutError(f"{len(entries)} changes instead of 1 in {tenant}")
            found[tenant] = datetime.fromisoformat(entries[0]["at"])
    return found


async def first_deltas(client: Client, control: rig.ModelControl, *, count: int) -> list[float]:
    """Ask at a steady pace; a delta's wait counts from the instant at which the model's first token was due."""
    await control.script(first_token_ms=FIRST_TOKEN_MS, tokens_per_s=TOKENS_PER_S, reply=ANSWER)
    texts = {f"q{number}": f"Hello, this is question {number}." for number in range(count + WARM_UP)}
    read_s: dict[str, float] = {}

    async def ask() -> None:
        for query_id, text in texts.items():
            await client.publish(QueryAsked(thread_id=query_id, text=text), tenant="bench", event_id=query_id)
            await anyio.sleep(PAUSE_S)

    async with client.watch([ANSWERS]) as events, anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        with anyio.move_on_after(WITHIN_S):
            async for event in events:
                if isinstance(event.payload, AnswerDelta) and event.payload.query_id in texts:
                    read_s.setdefault(event.payload.query_id, time.monotonic())
                if len(read_s) == len(texts):
                    break
    if len(read_s) < len(texts):
        raise TimedOutError(f"{len(read_s)} of {len(texts)} first deltas came")
    asked_s = {entry["asked"]: entry["started_s"] for entry in (await control.report())["requests"]}
    counted = list(texts.items())[WARM_UP:]
    return [(read_s[query_id] - asked_s[text]) * 1000 - FIRST_TOKEN_MS for query_id, text in counted]


@asynccontextmanager
async def watching(client: Client) -> AsyncGenerator[Witness]:
    """A witness of answers, requests and outcomes, for as long as the block runs."""
    witness = Witness()
    async with client.watch([ANSWERS, REQUESTS, OUTCOMES]) as events, anyio.create_task_group() as tasks:
        tasks.start_soon(witness.watch, events)
        yield witness
        tasks.cancel_scope.cancel()
