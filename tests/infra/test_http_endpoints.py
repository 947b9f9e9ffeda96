"""What a prober and Prometheus get from a worker."""

import json
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import anyio
import httpx
import pytest

from infra.http_endpoints import Endpoints, bind, serve
from topics.errors import ConfigError

DOCKERFILE = Path(__file__).parents[2] / "Dockerfile"


@dataclass
class Said:
    """Vitals that say what a test wants."""

    stalled: dict[str, list[str]] = field(default_factory=dict)
    why: list[str] = field(default_factory=list)

    def liveness(self) -> dict[str, list[str]]:
        return self.stalled

    def readiness(self) -> list[str]:
        return self.why

    def text(self) -> bytes:
        return b"sluice_ready 1.0\n"


@asynccontextmanager
async def endpoints(said: Said) -> AsyncGenerator[httpx.AsyncClient]:
    listener = bind("127.0.0.1", 0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve, Endpoints(cast("Any", said), cast("Any", said)), listener)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=10) as http:
            with anyio.fail_after(10):
                while True:
                    try:
                        await http.get("/livez")
                        break
                    except httpx.ConnectError:
                        await anyio.sleep(0.01)
            yield http
        tasks.cancel_scope.cancel()


async def test_a_worker_that_is_well_says_so_in_three_places():
    async with endpoints(Said()) as http:
        live, ready, metrics = [await http.get(path) for path in ("/livez", "/readyz", "/metrics")]
        assert (live.status_code, live.json()) == (200, {"alive": True, "stalled": {}})
        assert (ready.status_code, ready.json()) == (200, {"ready": True, "why": []})
        assert metrics.text == "sluice_ready 1.0\n"
        assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert live.headers["cache-control"] == "no-store"


async def test_one_that_is_not_says_why():
    async with endpoints(Said({"sluice.query": ["dispatch"]}, ["redis: full"])) as http:
        live, ready = await http.get("/livez"), await http.get("/readyz")
        assert (live.status_code, live.json()) == (503, {"alive": False, "stalled": {"sluice.query": ["dispatch"]}})
        assert (ready.status_code, ready.json()) == (503, {"ready": False, "why": ["redis: full"]})


async def test_nothing_else_is_served():
    async with endpoints(Said()) as http:
        assert (await http.get("/")).status_code == 404
        assert (await http.post("/livez")).status_code == 405
        head = await http.head("/livez")
        assert (head.status_code, head.content) == (200, b"")


def test_an_address_that_is_taken_is_a_wrong_setting():
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        with pytest.raises(ConfigError, match="SLUICE_HTTP_PORT"):
            bind("127.0.0.1", taken.getsockname()[1])


async def test_the_health_check_of_the_image_asks_whether_the_worker_moves():
    found = re.search(r"^HEALTHCHECK.*?CMD (\[.*?\])$", DOCKERFILE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    command = json.loads(found[1])
    assert command[0] == "python"
    said = Said()
    async with endpoints(said) as http:
        own = [sys.executable, *(one.replace(":8080", f":{http.base_url.port}") for one in command[1:])]
        assert (await anyio.run_process(own, check=False)).returncode == 0
        said.stalled = {"sluice.query": ["dispatch"]}
        assert (await anyio.run_process(own, check=False)).returncode != 0
