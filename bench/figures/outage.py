"""A provider that is out, and then two: who answers meanwhile, who waits, and who is lost (nobody may be).

Questions come at a steady pace. Provider a answers 503 for a while (20 minutes, scaled), then 503 comes from both. Each provider's
answers name it, and its own journal tells the trials. The control has provider a alone.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio
import httpx
import orjson

from bench import latency, rig
from bench.figures.bounds import hold
from infra.kafka.reading import scan
from infra.local.stack import local_stack
from topics.catalogue import DEAD_LETTERS, QUERIES, Catalogue
from topics.errors import TimedOutError
from topics.events import QueryAsked
from workers.client import Client, open_client
from workers.demo.crew import crew
from workers.demo.host import Host, furnish
from workers.demo.people import UNSIGNED
from workers.demo.witness import Witness

OUT_S: Final = 15.0
OUT_FULL_S: Final = 120.0
BOTH_OUT_S: Final = 6.0
BOTH_OUT_FULL_S: Final = 60.0
PAUSE_S: Final = 0.25
WITHIN_S: Final = 120.0
TRIAL: Final = "Say yes."
WORKER: Final = "worker"
COLUMNS: Final = ("phase", "asked", "answered by a", "answered by b", "answered later", "trials of a")


@dataclass
class Provider:
    """A model server of its own, whose every answer is its name."""

    name: str
    url: str
    http: httpx.AsyncClient

    async def reset(self) -> None:
        """Serve, and forget what was asked."""
        await self._post("reset", {})
        await self._post("replies", {"times": None, "text": f"Answer of {self.name}."})

    async def fail(self) -> None:
        """Answer 503 from now on."""
        await self._post("faults", {"kind": "status", "status": 503, "times": None})

    async def trials(self) -> list[int]:
        """The status of each trial since the last reset."""
        answer = await self.http.get(f"{self.url.removesuffix('/v1')}/control/requests")
        return [entry["status"] for entry in orjson.loads(answer.content)["requests"] if entry["asked"] == TRIAL]

    def settings(self) -> dict[str, Any]:
        """As `SLUICE_PROVIDERS` wants it."""
        return {"name": self.name, "base_url": self.url, "models": {"sluice-demo": "sluice-demo"}}

    async def _post(self, what: str, body: dict[str, Any]) -> None:
        (await self.http.post(f"{self.url.removesuffix('/v1')}/control/{what}", json=body)).raise_for_status()


@dataclass
class Asker:
    """Asks one question after the other, each in a thread of its own."""

    client: Client
    witness: Witness
    asked: list[str] = field(default_factory=list[str])

    async def ask(self) -> str:
        """Ask the next question, and wait for the pace."""
        query_id = f"q{len(self.asked)}"
        self.asked.append(query_id)
        query = QueryAsked(thread_id=query_id, text=f"Hello, this is question {query_id}.")
        await self.client.publish(query, tenant="bench", event_id=query_id)
        await anyio.sleep(PAUSE_S)
        return query_id

    async def ask_for(self, seconds: float) -> list[str]:
        """Ask until the time is over."""
        begun: list[str] = []
        end_s = anyio.current_time() + seconds
        while anyio.current_time() < end_s:
            begun.append(await self.ask())
        return begun

    async def ended(self, query_ids: list[str], *, what: str) -> None:
        """Wait until all of these were answered, or failed."""
        streams = self.witness.streams
        await self.witness.until(lambda: all(streams[one].ended for one in query_ids), within_s=WITHIN_S, waiting_for=what)

    def answered(self, query_ids: list[str]) -> int:
        """How many have an answer now."""
        return sum(self.witness.streams[one].completed is not None for one in query_ids)

    def answered_by(self, provider: str, query_ids: list[str]) -> int:
        """How many were answered by a provider."""
        completed = [self.witness.streams[one].completed for one in query_ids]
        return sum(one is not None and one.text == f"Answer of {provider}." for one in completed)


async def run(*, full: bool) -> dict[str, Any]:
    """Measure it, with the control. Prints the table."""
    broker, _ = rig.choose_broker(None)
    async with _provider("a") as a, _provider("b") as b, rig.rig(broker, **_settings(a, b)) as host:
        figures = await _with_both(host, a, b, out_s=OUT_FULL_S if full else OUT_S, both_s=BOTH_OUT_FULL_S if full else BOTH_OUT_S)
        figures |= await _alone(host, a)
    return hold(
        figures,
        every_question_in_the_outage_was_answered_by_b=figures["outage_answered_by_b"] == figures["outage_queries"] > 0,
        nothing_was_lost=figures["outage_dead_letters"] == 0,
        a_was_tried=figures["outage_probes"] > 0,
        a_was_used_again=figures["outage_used_again"],
        intake_paused=figures["outage_paused"],
        all_were_answered_in_the_end=figures["outage_caught_up"] == figures["outage_waited"] > 0,
        without_b_some_waited=figures["outage_control_unanswered"] > 0,
    )


def _settings(*providers: Provider, **more: Any) -> dict[str, Any]:
    return {"providers": [one.settings() for one in providers], "breaker_open_s": 1.0, **more}


@asynccontextmanager
async def _provider(name: str) -> AsyncGenerator[Provider]:
    # A stack whose broker and Redis are said to be elsewhere is a model server alone.
    with TemporaryDirectory(prefix="sluice-bench-", ignore_cleanup_errors=True) as folder:
        async with (
            local_stack(data_dir=Path(folder), kafka_bootstrap="none:1", redis_url="redis://none", back_office=False) as stack,
            httpx.AsyncClient(timeout=30.0, trust_env=False) as http,
        ):
            provider = Provider(name, stack.endpoints.model_base_url, http)
            await provider.reset()
            yield provider


@asynccontextmanager
async def _asking(host: Host) -> AsyncGenerator[Asker]:
    async with (
        crew(host.data_dir) as members,
        open_client(host.settings, source="bench") as client,
        latency.watching(client) as witness,
    ):
        await members.start(WORKER, ["query"])
        await rig.until_assigned(members, [WORKER], partitions=2 * QUERIES.partitions)
        asker = Asker(client, witness)
        first = [await asker.ask() for _ in range(8)]
        await asker.ended(first, what="the first answers")
        yield asker


async def _with_both(host: Host, a: Provider, b: Provider, *, out_s: float, both_s: float) -> dict[str, Any]:
    async with _asking(host) as asker:
        calm = list(asker.asked)
        rows: list[tuple[Any, ...]] = [_row("both serve", asker, calm, later=0, trials=0)]
        await a.fail()
        during = await asker.ask_for(out_s)
        await asker.ended(during, what="every question of the outage")
        probes = await a.trials()
        rows.append(_row("a is out", asker, during, later=0, trials=len(probes)))
        await a.reset()
        again = await _until_answered_by(a, asker)
        probes += await a.trials()
        rows.append(_row("a is back", asker, again, later=0, trials=len(await a.trials())))
        for provider in (a, b):
            await provider.fail()
        waited = await asker.ask_for(both_s)
        before, paused = asker.answered(waited), _has_paused(host)
        for provider in (a, b):
            await provider.reset()
        await asker.ended(waited, what="every question that waited")
        rows.append(_row("both are out", asker, waited, later=asker.answered(waited) - before, trials=len(await a.trials())))
        caught_up = asker.answered(waited)
    rig.print_table("Questions while a provider is out", COLUMNS, rows)
    return {
        "outage_seconds": out_s,
        "outage_queries": len(during),
        "outage_answered_by_b": asker.answered_by("b", during),
        "outage_probes": sum(status == 503 for status in probes),
        "outage_used_again": asker.answered_by("a", again) > 0,
        "outage_paused": paused,
        "outage_waited": len(waited),
        "outage_caught_up": caught_up,
        "outage_dead_letters": await _dead_letters(host),
    }


async def _until_answered_by(provider: Provider, asker: Asker) -> list[str]:
    again: list[str] = []
    with anyio.move_on_after(WITHIN_S):
        while not asker.answered_by(provider.name, again):
            again.append(await asker.ask())
        return again
    raise TimedOutError(f"provider {provider.name} was not used again within {WITHIN_S:g} s")


def _row(phase: str, asker: Asker, query_ids: list[str], *, later: int, trials: int) -> tuple[Any, ...]:
    by = [asker.answered_by(name, query_ids) for name in ("a", "b")]
    return phase, len(query_ids), *by, later, trials


def _has_paused(host: Host) -> bool:
    return b'"outage_began"' in (host.data_dir / "logs" / f"{WORKER}.log").read_bytes()


async def _dead_letters(host: Host) -> int:
    found = 0
    async with scan(host.settings.kafka(), [Catalogue(host.settings.topic_prefix).name(DEAD_LETTERS)]) as records:
        async for _ in records:
            found += 1
    return found


async def _alone(host: Host, a: Provider) -> dict[str, Any]:
    """The control: the same outage without a second provider."""
    own = {"topic_prefix": "alone.", "group_prefix": "alone", "redis_prefix": "alone", "policy_file": str(UNSIGNED)}
    with TemporaryDirectory(prefix="sluice-bench-", ignore_cleanup_errors=True) as folder:
        (Path(folder) / "logs").mkdir()
        lone = await furnish(host.stack, Path(folder), **_settings(a, **own))
        async with _asking(lone) as asker:
            await a.fail()
            asked = await asker.ask_for(BOTH_OUT_S)
            unanswered = len(asked) - asker.answered(asked)
            await a.reset()
            await asker.ended(asked, what="every question of the control")
    print(f"  control, a alone and out: {unanswered} of {len(asked)} questions had no answer while it was out")
    return {"outage_control_queries": len(asked), "outage_control_unanswered": unanswered}
