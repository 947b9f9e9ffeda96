"""A stack of a test's own, which it may break, and one worker on it that is asked how it feels."""

import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import anyio
import httpx
import pytest
from anyio.abc import Process
from prometheus_client.parser import text_string_to_metric_families

from infra.kafka.reading import scan
from infra.local.apache_kafka import apache_kafka_missing
from infra.local.ports import HOST, free_port
from infra.local.stack import REDIS
from topics.catalogue import DEAD_LETTERS, Catalogue, TopicSpec
from workers.demo.host import Host, hosted

PATIENCE_S = 90.0


@dataclass
class Lone:
    """The stack and its worker."""

    host: Host
    http: httpx.AsyncClient
    worker: Process
    history: list[tuple[int, list[str]]] = field(default_factory=list)

    @property
    def catalogue(self) -> Catalogue:
        return Catalogue(self.host.settings.topic_prefix)

    async def stop_redis(self) -> None:
        await self.host.stack._server(REDIS).kill()

    async def start_redis(self) -> None:
        await self.host.stack._server(REDIS).start()

    async def live(self) -> tuple[int, Any]:
        answer = await self.http.get("/livez")
        return answer.status_code, answer.json()

    async def why_unready(self) -> list[str]:
        """Empty when it is ready. A process that does not answer yet is not."""
        try:
            answer = await self.http.get("/readyz")
        except httpx.TransportError as error:
            return [type(error).__name__]
        why = answer.json()["why"]
        assert (answer.status_code == 200) == (why == [])
        return why

    async def until_ready(self) -> None:
        await self.until_unready_for(lambda why: not why)

    async def until_unready_for(self, is_meant: Callable[[list[str]], bool]) -> list[str]:
        why: list[str] = []
        with anyio.move_on_after(PATIENCE_S):
            while True:
                if is_meant(why := await self.why_unready()):
                    return why
                await anyio.sleep(0.1)
        pytest.fail(f"not seen within {PATIENCE_S:g} s; the last was {why}")

    async def figures(self) -> Counter[str]:
        """Each figure of ours, summed over its labels."""
        found: Counter[str] = Counter()
        for family in text_string_to_metric_families((await self.http.get("/metrics")).text):
            for sample in family.samples:
                found[sample.name] += sample.value
        return found

    async def until_figures(self, is_meant: Callable[[Counter[str]], bool]) -> Counter[str]:
        seen: Counter[str] = Counter()
        with anyio.move_on_after(PATIENCE_S):
            while not is_meant(seen := await self.figures()):
                await anyio.sleep(0.2)
            return seen
        pytest.fail(f"not seen within {PATIENCE_S:g} s; the last were {seen}")

    async def count(self, spec: TopicSpec) -> int:
        async with scan(self.host.settings.kafka(), [self.catalogue.name(spec)]) as records:
            return len([record async for record in records])

    async def dead_letters(self) -> int:
        return await self.count(DEAD_LETTERS)


@asynccontextmanager
async def lone_worker(
    folder: Path, *workers: str, broker: Literal["tansu", "apache-kafka"] = "apache-kafka", **settings: Any
) -> AsyncGenerator[Lone]:
    """Everything of its own; all of it is gone afterwards."""
    if broker == "apache-kafka" and (missing := apache_kafka_missing()):
        pytest.skip(missing)
    port = free_port()
    async with hosted(folder, broker=broker, http_port=port, **settings) as host:
        command = [sys.executable, "-m", "workers", "worker", "--data-dir", str(folder), *workers]
        with (folder / "logs" / "lone.log").open("wb") as log:
            process = await anyio.open_process(command, stdout=log, stderr=log)
            try:
                async with httpx.AsyncClient(base_url=f"http://{HOST}:{port}", trust_env=False, timeout=10) as http:
                    lone = Lone(host, http, process)
                    await lone.until_unready_for(lambda why: why != ["ConnectError"])
                    yield lone
            finally:
                if process.returncode is None:
                    process.kill()
                with anyio.CancelScope(shield=True):
                    await process.wait()
