"""How long a page of the approvals inbox takes with 100,000 that wait: listed, filtered, deep, and while it is written to.

Nothing but Redis is needed, so the broker makes no difference.
"""

import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import anyio

from bench.rig import percentile, print_table
from infra.local.redis_server import redis_server
from infra.local.stack import BrokerKind
from infra.redis.approvals import RedisApprovalRegistry
from infra.redis.client import connect
from topics.approval_state import ApprovalQuery, ApprovalState
from topics.events import ApprovalRequested, Terms

TENANTS: Final = ("acme", "globex", "initech", "umbrella", "hooli")
TOOLS: Final = tuple(f"tool_{number}" for number in range(12))
BEGAN_AT: Final = datetime(2026, 1, 5, tzinfo=UTC)
AT_ONCE: Final = 1_000
PAGE: Final = 50


async def run(broker: BrokerKind, *, quick: bool) -> dict[str, Any]:
    """Fill the inbox, then ask for pages."""
    del broker
    pending, rounds = (10_000, 20) if quick else (100_000, 60)
    with tempfile.TemporaryDirectory() as folder:
        async with redis_server(data_dir=Path(folder)) as server:
            client = connect(server.url, timeout_s=60.0)
            try:
                registry = RedisApprovalRegistry(client)
                await registry.prepare()
                fill_s = await _fill(registry, pending)
                pages = {name: await _times(ask, rounds) for name, ask in _pages(registry).items()}
                pages["tool and amount, while votes are stored"] = await _while_written(registry, rounds)
                memory_mb = int((await client.info("memory"))["used_memory"]) / 2**20
            finally:
                await client.aclose()
    rows = [(name, *figures.values()) for name, figures in pages.items()]
    print_table(f"Pages of {PAGE} of {pending:,} open approvals, in ms", ("page", "p50", "p95", "longest"), rows)
    print(f"  filled in {fill_s:.1f} s, {memory_mb:.0f} MB in Redis", flush=True)
    return {"pending": pending, "page": PAGE, "fill_s": fill_s, "memory_mb": memory_mb, "pages_ms": pages}


def _pages(registry: RedisApprovalRegistry) -> dict[str, Callable[[], Awaitable[Any]]]:
    """What people ask for: everything, one tenant, filters that many match and filters that few match, and a late page."""
    deep = str(round((BEGAN_AT + timedelta(days=20)).timestamp() * 1_000_000))
    queries = {
        "all": ApprovalQuery(None, limit=PAGE),
        "tenant": ApprovalQuery("acme", limit=PAGE),
        "tenant, late page": ApprovalQuery("acme", limit=PAGE, cursor=deep),
        "tenant and tool": ApprovalQuery("acme", tool=TOOLS[3], limit=PAGE),
        "tenant and amount, half match": ApprovalQuery("acme", min_amount=50_000, limit=PAGE),
        "tenant, tool, amount and age": ApprovalQuery("acme", tool=TOOLS[3], min_amount=90_000, older_than_s=86_400, limit=PAGE),
        "all tenants, amount, half match": ApprovalQuery(None, min_amount=50_000, limit=PAGE),
        "tenant and tool, late page": ApprovalQuery("acme", tool=TOOLS[3], limit=PAGE, cursor=deep),
    }
    return {name: lambda query=query: registry.search(query) for name, query in queries.items()}


async def _times(ask: Callable[[], Awaitable[Any]], rounds: int) -> dict[str, float]:
    taken: list[float] = []
    for _ in range(rounds):
        began_s = time.perf_counter()
        found = await ask()
        taken.append((time.perf_counter() - began_s) * 1_000)
        if not found.approvals:
            raise ValueError("the page is empty: it shows nothing")
    return {"p50": percentile(taken, 50), "p95": percentile(taken, 95), "longest": max(taken)}


async def _while_written(registry: RedisApprovalRegistry, rounds: int) -> dict[str, float]:
    """The same page while votes are stored one after the other."""
    found = await registry.pending("acme", limit=500)

    async def write() -> None:
        while True:
            for number, state in enumerate(found):
                after = found[number] = state.changed(reminders=state.reminders + 1)
                await registry.store(after)

    found = list(found)
    async with anyio.create_task_group() as group:
        group.start_soon(write)
        times = await _times(lambda: registry.search(ApprovalQuery("acme", TOOLS[3], min_amount=90_000, limit=PAGE)), rounds)
        group.cancel_scope.cancel()
    return times


async def _fill(registry: RedisApprovalRegistry, pending: int) -> float:
    rng, began_s = random.Random(4), time.perf_counter()
    for start in range(0, pending, AT_ONCE):
        await registry.restore([_approval(number, rng, of=pending) for number in range(start, start + AT_ONCE)])
    return time.perf_counter() - began_s


def _approval(number: int, rng: random.Random, *, of: int) -> ApprovalState:
    asked_at = BEGAN_AT + timedelta(days=30) * (number / of)
    request = ApprovalRequested(
        approval_id=f"approval-{number:06d}",
        thread_id=f"thread-{number}",
        query_id=f"query-{number}",
        interrupt_id=f"interrupt-{number}",
        tool=rng.choice(TOOLS),
        tool_class="IRREVERSIBLE",
        arguments={"order_id": f"#W{number:07d}", "item_ids": ["1008292230"], "payment_method_id": "credit_card_4466831"},
        args_digest=f"{number:064x}",
        policy_version="1",
        graph_version="1",
        allowed_decisions=("approve", "edit", "reject", "respond"),
        terms=Terms(roles=("refunds",), quorum=2, expires_after_s=86_400 * 40),
        amount=rng.randrange(100_000),
        requester=f"user-{number % 500}",
        requested_at=asked_at,
        expires_at=asked_at + timedelta(days=40),
    )
    return ApprovalState(tenant=rng.choice(TENANTS), request=request)
