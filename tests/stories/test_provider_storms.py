"""Case 25: a hundred questions at once and a provider that says no: the engine, the gateway and a real model server over HTTP."""

from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import httpx
import pytest

from infra.kafka.dead_letter import REASON, header_text
from infra.kafka.retry import RetryPolicy
from infra.models.breaker import BreakerPolicy
from infra.models.gateway import GatewayChatModel, gateway_model
from infra.models.metering import Unmetered
from infra.models.routing import ProviderEndpoint
from tests.infra.models.served import serving
from tests.stories.small_engine import SmallEngine, answer, log_of, question, quick
from topics.envelope import Event
from topics.events import Payload

RECORDS = 100
CALLS_AT_ONCE = 20
WAIT_S = 2.0
TRIAL = "Say yes."


@pytest.fixture(scope="module")
def server_url() -> Iterator[str]:
    with serving() as url:
        yield url


@dataclass
class Storm:
    """A provider, and the engine whose every record asks it once."""

    model: GatewayChatModel
    http: httpx.AsyncClient

    async def fault(self, **fault: Any) -> None:
        (await self.http.post("/faults", json=fault)).raise_for_status()

    async def mend(self) -> None:
        (await self.http.post("/reset")).raise_for_status()

    async def report(self) -> dict[str, Any]:
        return (await self.http.get("/requests")).json()

    async def calls(self) -> list[dict[str, Any]]:
        """What was asked for records, in order of its start: no trials."""
        found = [one for one in (await self.report())["requests"] if one["asked"] != TRIAL]
        return sorted(found, key=lambda one: one["started_s"])

    async def handle(self, event: Event[Any]) -> AsyncGenerator[Payload]:
        await self.model.ainvoke(f"question {event.id}.", {"metadata": {"tenant": event.tenant}})
        yield answer(event)

    def engine(self, records: int = RECORDS, **retry: Any) -> SmallEngine:
        log = log_of([question(number, f"t{number}") for number in range(records)])
        return SmallEngine(log, self.handle, quick(slots=RECORDS, retry=RetryPolicy(**retry)))


@pytest.fixture
async def storm(server_url: str) -> AsyncIterator[Storm]:
    endpoint = ProviderEndpoint(name="p", base_url=f"{server_url}/v1", models={"m": "m"})
    model = gateway_model(
        [endpoint],
        model="m",
        tenants={},
        meter=Unmetered(),
        timeout_s=10,
        concurrency=CALLS_AT_ONCE,
        breaker=BreakerPolicy(open_s=0.2, max_open_s=0.4),
    )
    async with httpx.AsyncClient(base_url=f"{server_url}/control", trust_env=False) as http:
        storm = Storm(model, http)
        await storm.mend()
        yield storm
        await storm.mend()
    await model.aclose()


async def test_a_storm_of_limits_is_waited_out_and_nobody_comes_back_early_or_all_at_once(storm: Storm) -> None:
    """Case 25 (i): the provider's two seconds are kept for every call, and what waits comes back spread."""
    await storm.fault(kind="status", status=429, code="rate_limit_exceeded", retry_after_s=WAIT_S, times=2 * RECORDS)
    engine = storm.engine()
    async with engine.running():
        await engine.until(engine.all_committed, within_s=60)
    assert engine.letters.records == []
    assert len(engine.outputs.records) == RECORDS
    assert (await storm.report())["peak_in_flight"] <= CALLS_AT_ONCE
    by_record: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for call in await storm.calls():
        by_record[call["asked"]].append(call)
    assert sum(map(len, by_record.values())) == 3 * RECORDS
    for calls in by_record.values():
        for refused, retried in pairwise(calls):
            assert refused["status"] == 429
            assert retried["started_s"] >= refused["started_s"] + WAIT_S
    retries = [call["started_s"] for calls in by_record.values() for call in calls[1:]]
    (_, fullest), *_ = Counter(int(started_s / 0.05) for started_s in retries).most_common(1)
    assert fullest <= 0.2 * len(retries)


async def test_a_quota_that_is_used_up_pauses_intake_and_floods_nothing(storm: Storm) -> None:
    """Case 25 (ii): at most one call a record, no dead letter, no attempt spent; afterwards all is done."""
    await storm.fault(kind="status", status=429, code="insufficient_quota", times=None)
    engine = storm.engine(outage_wait_s=0.1)
    async with engine.running():
        await engine.until(lambda: engine.runtime.board.counters.handed_back >= RECORDS)
        assert not engine.runtime.board.gate.is_open
        assert storm.model.doors[0].is_out
        asked = Counter(call["asked"] for call in await storm.calls())
        assert max(asked.values()) == 1
        assert len(asked) <= CALLS_AT_ONCE, "who found the breaker open asked nobody"
        assert engine.letters.records == []
        assert engine.counters.retried == 0
        await storm.mend()
        await engine.until(engine.all_committed, within_s=30)
    assert engine.letters.records == []
    assert len(engine.outputs.records) == RECORDS


async def test_a_wait_of_an_hour_holds_up_its_own_key_alone(storm: Storm) -> None:
    """Case 25 (iii): the partition's other keys are done, intake goes on reading, and nothing behind the hour is committed."""
    await storm.fault(kind="status", status=429, code="rate_limit_exceeded", retry_after_s=3600, match="question 0-3.", times=None)
    engine = storm.engine(20)
    async with engine.running():
        await engine.until(lambda: len(engine.outputs.records) == 19)
        polls = engine.counters.polls
        await engine.until(lambda: engine.counters.polls > polls + 3)
        assert engine.runtime.board.gate.is_open
        assert engine.consumer.committed["queries", 0] <= 3
    assert [call["status"] for call in await storm.calls() if call["asked"] == "question 0-3."] == [429]
    assert engine.letters.records == []


@pytest.mark.parametrize("kind", ["empty_choices", "null_choices"])
async def test_a_reply_without_choices_is_retried_within_bounds_and_then_kept_with_its_reason(storm: Storm, kind: str) -> None:
    """Case 24 (ii), (iii): one classified error each time, never an IndexError, and the others go on."""
    await storm.fault(kind=kind, match="question 0-3.", times=None)
    engine = storm.engine(8, base_s=0.01, cap_s=0.02, max_failures=3)
    await engine.run_to_the_end()
    (letter,) = engine.letters.records
    assert header_text(letter.headers, REASON) == "provider_bad_reply"
    assert len(engine.outputs.records) == 7
    assert sum(call["asked"] == "question 0-3." for call in await storm.calls()) == 3
