"""Cases 30 and 40: every model call is traced under its own tenant, and nothing personal is in what operators see (P8, P11)."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from infra.kafka.dead_letter import original_headers
from infra.local.data import datasets
from infra.local.ports import free_port
from infra.redaction import FAILED
from infra.redis.budgets import Spent
from infra.redis.client import connect
from infra.redis.keys import Keys
from tests.infra.test_redaction import CASE_40
from tests.stories.collector import Collector, Span, collecting
from tests.stories.servers import Realm
from topics.catalogue import ARTICLES, QUERIES, TICKETS
from topics.events import TicketOpened
from workers.demo.crew import crew
from workers.metering import build_budgets

pytestmark = [pytest.mark.story, pytest.mark.timeout(240)]

SECRET = "; ".join(CASE_40)
STRINGS = (*CASE_40, "sk-test-123", "jane.roe")
PRICES = {
    "sluice-demo": {"input_usd_cents": 15, "output_usd_cents": 60},
    "sluice-minilm": {"input_usd_cents": 2, "output_usd_cents": 0},
}
MUCH = {"*": {"tokens": 10**9, "usd_cents": 10**6, "runs": 1000}}
CLIENT = 3


async def journal_of(servers: Any, http: httpx.AsyncClient) -> list[dict[str, Any]]:
    """What the model server answered."""
    report = (await http.get(f"{servers.model_control}/requests")).json()
    return [entry for entry in report["requests"] if entry["status"] == 200]


def calls_in(spans: list[Span], operation: str) -> list[Span]:
    return [one for one in spans if one.kind == CLIENT and one.attributes["gen_ai.operation.name"] == operation]


def cost_of(entry: dict[str, Any]) -> int:
    """Microcents of a request."""
    price = PRICES[entry["model"]]
    return entry["input_tokens"] * price["input_usd_cents"] + entry["output_tokens"] * price["output_usd_cents"]


async def spent_by(tenant: str, realm: Realm) -> Spent:
    redis = connect(realm.settings.redis_url, timeout_s=5.0)
    try:
        return await build_budgets(realm.settings, redis=redis, keys=Keys(realm.settings.redis_prefix)).spent(tenant)
    finally:
        await redis.aclose()


async def test_every_call_of_a_model_is_a_span_of_its_tenant_with_the_server_s_own_counts(servers, world_in):
    """Case 30: 50 queries and 20 tickets of two tenants at once; 0 missing, 0 mixed. Budgets hold the server's counts too."""
    with collecting() as collector:
        realm = await servers.realm("traced", otlp_endpoint=collector.endpoint, model_prices=PRICES, tenant_budgets=MUCH)
        async with world_in(realm) as world, crew(realm.data_dir) as members:
            await world.model("reset", {})
            await members.start("worker-1")
            for number in range(50):
                tenant = world.tenant(("one", "two")[number % 2])
                await world.ask(tenant, f"How do I return a product, wonders {tenant}?", thread=f"t-{number}")
            for number in range(20):
                tenant = world.tenant(("one", "two")[number % 2])
                ticket = TicketOpened(ticket_id=f"T-{number}", body=f"My card was stolen, writes {tenant}")
                await world.client.publish(ticket, tenant=tenant, event_id=f"{tenant}-{number}")
            await world.until_ended()
            await world.until(lambda: len(world.witness.triaged) == 20, "20 tickets")
            answered = await journal_of(servers, world.http)
            await members.stop("worker-1")
            spent = {tenant: await spent_by(tenant, realm) for tenant in (world.tenant("one"), world.tenant("two"))}
    told = [one for one in answered if one["path"].endswith("completions")]
    spans = collector.spans()
    chats = {one.attributes.get("gen_ai.response.id"): one for one in calls_in(spans, "chat")}
    assert len(told) >= 70
    assert sorted(one["reply_id"] for one in told) == sorted(chats)
    by_id = {one.id: one for one in spans}
    for entry in told:
        span = chats[entry["reply_id"]]
        tenant = span.attributes["sluice.tenant"]
        assert tenant in entry["asked"], "mixed"
        assert by_id[span.parent].name == "model"
        assert by_id[span.parent].attributes["sluice.tenant"] == tenant
        counted = (span.attributes["gen_ai.usage.input_tokens"], span.attributes["gen_ai.usage.output_tokens"])
        assert counted == (entry["input_tokens"], entry["output_tokens"])
        assert span.attributes["sluice.cost_microcents"] == 15 * counted[0] + 60 * counted[1]
    embedded = [one for one in answered if one["path"].endswith("embeddings")]
    assert len(calls_in(spans, "embeddings")) == len(embedded) == 50
    counts = Counter(one.attributes["gen_ai.usage.input_tokens"] for one in calls_in(spans, "embeddings"))
    assert counts == Counter(one["input_tokens"] for one in embedded)
    for tenant, total in spent.items():
        own = [one for one in answered if tenant in one["asked"]]
        cents = sum(cost_of(one) for one in own) / 1_000_000
        tokens = sum(one["input_tokens"] + one["output_tokens"] for one in own)
        assert total == Spent(tokens, pytest.approx(cents), runs=25)
    assert all(by_id[one.parent].name == "retrieval articles" for one in calls_in(spans, "embeddings"))
    asked = Counter(one.attributes["sluice.tenant"] for one in spans if one.name == f"process {realm.catalogue.name(QUERIES)}")
    assert asked == {world.tenant("one"): 25, world.tenant("two"): 25}


async def test_what_a_decision_leads_to_is_linked_to_its_request(servers, world_in):
    with collecting() as collector:
        realm = await servers.realm("linked", otlp_endpoint=collector.endpoint)
        async with world_in(realm) as world, crew(realm.data_dir) as members:
            await members.start("worker-1")
            tenant = world.tenant()
            task = next(iter(datasets.retail_tasks("test")))
            await world.order(tenant, task)
            await world.until_ended()
            await members.stop("worker-1")
    spans = collector.spans()
    by_place = {(one.trace, one.id): one for one in spans}
    decided = [one for one in spans if one.attributes.get("cloudevents.event_type") == "approval.decided" and one.kind == 5]
    assert decided
    for one in decided:
        linked = [by_place[link].name for link in one.links if link in by_place]
        assert any(name.endswith(("queries", "decisions")) for name in linked), linked


@pytest.mark.parametrize("redactor", ["", "tests.stories.leaky:broken_redactor"], ids=["redacted", "the redactor fails"])
async def test_nothing_personal_is_in_what_operators_see_whatever_fails(servers, world_in, redactor):
    """Case 40."""
    port = free_port()
    with collecting() as collector:
        realm = await servers.realm(
            f"private-{len(redactor)}",
            otlp_endpoint=collector.endpoint,
            redactor=redactor,
            toolset="tests.stories.leaky:toolset",
            http_port=port,
            trace_content=True,
            max_failures=1,
            log_level="debug",
        )
        async with world_in(realm) as world, crew(realm.data_dir) as members:
            await members.start("worker-1")
            await everything_fails(world)
            letters = await world.letters(6)
            metrics = (await world.http.get(f"http://127.0.0.1:{port}/metrics")).text
            await members.stop("worker-1")
    reasons = {letter.reason for letter in letters}
    assert {"bad_json", "bad_payload", "provider_refused_request", "bad_model_output"} <= reasons
    assert SECRET.encode() in b"".join(letter.record.value or b"" for letter in letters)  # kept, to be replayed
    for letter in letters:
        added = letter.record.headers[len(original_headers(letter.record.headers)) :]
        assert hits(b"".join(value or b"" for _, value in added)) == []
    assert hits(metrics.encode()) == []
    assert hits(*(path.read_bytes() for path in logs_of(realm, servers.folder))) == []
    assert hits(*collector.bodies) == []
    check_spans(collector, failed=bool(redactor))
    for letter in letters:
        masked, revealed = shown(realm, letter.id), shown(realm, letter.id, "--reveal")
        assert hits(masked) == []
        assert letter.reason.encode() in masked
        assert hits(revealed) != [] or SECRET.encode() not in (letter.record.value or b"")
    assert hits(run_cli(realm, "dead", "list"), run_cli(realm, "dead", "list", "--json")) == []


async def everything_fails(world: Any) -> None:
    """Schema errors, a model that echoes, one that answers with what it was told, a tool's bug, an index that refuses."""
    tenant, catalogue = world.tenant(), world.realm.catalogue

    def headers(kind: str, number: int) -> tuple[tuple[str, bytes], ...]:
        pairs = {"specversion": "1.0", "id": f"raw-{number}", "type": kind, "source": "story", "tenant": tenant}
        return tuple((f"ce_{name}", value.encode()) for name, value in pairs.items())

    tickets = catalogue.name(TICKETS)
    await world.write(tickets, None, SECRET.encode(), headers("ticket.opened", 1))
    bad = json.dumps({"ticket_id": [SECRET], "body": {SECRET: SECRET}}).encode()
    await world.write(tickets, None, bad, headers("ticket.opened", 2))
    await world.write(catalogue.name(ARTICLES), SECRET.encode(), None, ())
    await world.write(tickets, None, json.dumps({"ticket_id": "T-9", "body": SECRET}).encode(), headers(SECRET, 3))
    await world.model("faults", {"kind": "status", "status": 400, "echo": True, "match": f"echo {tenant}", "times": None})
    echoed = TicketOpened(ticket_id="T-1", body=f"echo {tenant}: {SECRET}")
    await world.client.publish(echoed, tenant=tenant, event_id=f"{tenant}-1")
    said = json.dumps({"intent": SECRET, "priority": SECRET, "needs_person": SECRET, "summary": SECRET})
    await world.model("replies", {"text": said, "match": f"parrot {tenant}", "times": None})
    parroted = TicketOpened(ticket_id="T-2", body=f"parrot {tenant}: {SECRET}")
    await world.client.publish(parroted, tenant=tenant, event_id=f"{tenant}-2")
    call = {"name": "read_note", "arguments": {"text": SECRET}}
    await world.model("replies", [{"tool_calls": [call], "match": f"note {tenant}"}, {"text": "Sorry.", "match": f"note {tenant}"}])
    await world.ask(tenant, f"note {tenant}: {SECRET}")
    await world.until_ended()


def check_spans(collector: Collector, *, failed: bool) -> None:
    """Spans are there, with the type of what failed; where nothing can be redacted with a marker in the place of their texts."""
    spans = collector.spans()
    assert {"bad_payload", "provider_refused_request", "RuntimeError"} <= {one.attributes.get("error.type") for one in spans}
    assert {one.name for one in spans} == {FAILED} if failed else "execute_tool read_note" in {one.name for one in spans}
    assert all(one.id and one.trace for one in spans)


def hits(*bodies: bytes) -> list[str]:
    return [one for one in STRINGS for body in bodies if one.encode() in body]


def logs_of(realm: Realm, folder: Path) -> list[Path]:
    found = [*realm.data_dir.glob("logs/*"), *folder.glob("logs/*")]
    assert found
    return found


def run_cli(realm: Realm, *arguments: str) -> bytes:
    command = [sys.executable, "-m", "workers", *arguments]
    environ = {**os.environ, "SLUICE_DATA_DIR": str(realm.data_dir), "COLUMNS": "200"}  # noqa: TID251 for a command of its own
    done = subprocess.run(command, env=environ, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def shown(realm: Realm, letter_id: str, *more: str) -> bytes:
    return run_cli(realm, "dead", "show", letter_id, *more)
