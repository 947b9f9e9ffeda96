"""Who is on the scene of an outage: providers that fail as they are told, somebody who asks, and a table of what came of it."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio
import httpx
import orjson

from infra.local.stack import local_stack
from topics.errors import TimedOutError
from topics.events import QueryAsked
from workers.client import Client
from workers.demo.host import Host
from workers.demo.witness import Witness

PAUSE_S: Final = 0.25
WITHIN_S: Final = 120.0
QUESTION: Final = "Hello, this is question"
TRIAL: Final = "Say yes."
COLUMNS: Final = ("phase", "asked", "answered by a", "answered by b", "answered later", "trials of a")


@dataclass(frozen=True, slots=True)
class Provider:
    """A model server of its own, whose every answer names it, from the first word on.

    `timeout_s` is for its first token, and between its tokens; None: as for all providers.
    """

    name: str
    url: str
    http: httpx.AsyncClient
    timeout_s: float | None = None

    @property
    def text(self) -> str:
        """Its answer to everything."""
        return f"{self.name} alone says this, from its first word to its last."

    async def reset(self) -> None:
        """Serve, and forget what was asked."""
        await self._post("reset", {})
        await self._post("replies", {"times": None, "text": self.text})

    async def fault(self, *, times: int | None = None, **fault: Any) -> None:
        """Fail in this way from now on, forever or so many times, and forget what was asked before."""
        await self.reset()
        await self._post("faults", {**fault, "times": times})

    async def count(self, *, asked: str | None = None, fault: str | None = None) -> int:
        """How many requests it got since the last reset, with this text, and where it failed in this way."""
        answer = await self.http.get(f"{self.url.removesuffix('/v1')}/control/requests")
        entries = orjson.loads(answer.content)["requests"]
        return sum(asked in {None, one["asked"]} and (fault is None or fault in one["faults"]) for one in entries)

    def settings(self) -> dict[str, Any]:
        """As `SLUICE_PROVIDERS` wants it."""
        return {"name": self.name, "base_url": self.url, "models": {"sluice-demo": "sluice-demo"}, "timeout_s": self.timeout_s}

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
        query = QueryAsked(thread_id=query_id, text=f"{QUESTION} {query_id}.")
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

    async def ask_until(self, happened: Callable[[], Awaitable[Any]], *, what: str) -> list[str]:
        """Ask until something has happened.

        Raises:
            TimedOutError: It did not, in time.
        """
        begun: list[str] = []
        with anyio.move_on_after(WITHIN_S):
            while not await happened():
                begun.append(await self.ask())
            return begun
        raise TimedOutError(f"{what} did not happen within {WITHIN_S:g} s")

    async def ended(self, query_ids: Sequence[str], *, what: str) -> None:
        """Wait until all of these were answered, or failed."""
        streams = self.witness.streams
        await self.witness.until(lambda: all(streams[one].ended for one in query_ids), within_s=WITHIN_S, waiting_for=what)

    def answered(self, query_ids: Sequence[str], *, text: str | None = None) -> int:
        """How many have an answer now; with `text`, that answer."""
        completed = [self.witness.streams[one].completed for one in query_ids]
        return sum(one is not None and text in {None, one.text} for one in completed)


@dataclass(slots=True)
class Scene:
    """Who asks, who answers, and the rows of the table."""

    host: Host
    asker: Asker
    a: Provider
    b: Provider
    rows: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])

    def answered_by(self, provider: Provider, query_ids: Sequence[str]) -> int:
        """How many have a provider's answer, and nothing else."""
        return self.asker.answered(query_ids, text=provider.text)

    async def show(self, phase: str, query_ids: Sequence[str], *, later: int = 0) -> None:
        """Put a phase into the table, as it is now: before provider a forgets what it was asked."""
        by = [self.answered_by(one, query_ids) for one in (self.a, self.b)]
        self.rows.append((phase, len(query_ids), *by, later, await self.a.count(asked=TRIAL)))

    async def a_serves_again(self) -> list[str]:
        """Mend provider a, and ask until it answers."""
        await self.a.reset()
        asked: list[str] = []

        async def answers() -> bool:
            asked[:] = self.asker.asked[before:]
            return self.answered_by(self.a, asked) > 0

        before = len(self.asker.asked)
        await self.asker.ask_until(answers, what="an answer of provider a")
        await self.asker.ended(asked, what="every question since a is back")
        await self.show("a is back", asked)
        return asked


@asynccontextmanager
async def open_provider(name: str, *, timeout_s: float | None = None) -> AsyncGenerator[Provider]:
    """A provider that serves, for as long as the block runs."""
    # A stack whose broker and Redis are said to be elsewhere is a model server alone.
    with TemporaryDirectory(prefix="sluice-bench-", ignore_cleanup_errors=True) as folder:
        async with (
            local_stack(data_dir=Path(folder), kafka_bootstrap="none:1", redis_url="redis://none", back_office=False) as stack,
            httpx.AsyncClient(timeout=30.0, trust_env=False) as http,
        ):
            found = Provider(name, stack.endpoints.model_base_url, http, timeout_s)
            await found.reset()
            yield found
