"""What a real worker process says of itself from its start to its drain, and what it keeps to itself."""

import signal
import sys
from pathlib import Path

import anyio
import httpx
import pytest

from tests.stories.lone_worker import lone_worker
from topics.events import QueryAsked
from workers.client import open_client

pytestmark = [pytest.mark.story, pytest.mark.timeout(240)]

SECRET = "jane.doe@example.org"


async def test_a_worker_is_unready_until_it_has_its_partitions_alive_with_a_slow_handler_and_unready_while_it_drains(
    tmp_path: Path,
):
    async with lone_worker(tmp_path, "query", drain_s=30.0) as lone, httpx.AsyncClient(trust_env=False) as http:
        await lone.until_ready()
        assert (await lone.figures())["sluice_assigned_partitions"] > 0
        model = lone.host.stack.endpoints.model_base_url.removesuffix("/v1")
        (await http.post(f"{model}/control/pace", json={"first_token_ms": 4000, "tokens_per_s": 0})).raise_for_status()
        async with open_client(lone.host.settings, source="story") as client:
            for number in range(3):
                asked = QueryAsked(thread_id=f"t{number}", text=f"Hello, I am {SECRET}", user_id=SECRET)
                await client.publish(asked, tenant="shop-of-jane", event_id=f"q{number}")
        await lone.until_figures(lambda seen: seen["sluice_slots_used"] == 3)
        assert await lone.live() == (200, {"alive": True, "stalled": {}})
        assert await lone.why_unready() == [], "busy is ready"

        lone.worker.send_signal(signal.SIGTERM)
        why = await lone.until_unready_for(lambda why: why != [])
        assert [one.split(": ")[1] for one in why] == ["draining"]
        assert (await lone.live())[0] == 200
        text = (await lone.http.get("/metrics")).text
        assert not [word for word in (SECRET, "jane", "shop-of") if word in text], "P11"
        with anyio.fail_after(60):
            assert await lone.worker.wait() == 0
        assert await lone.dead_letters() == 0


async def test_a_port_that_is_taken_stops_the_worker_with_one_sentence(tmp_path: Path):
    async with lone_worker(tmp_path, "query", broker="tansu") as lone:
        done = await anyio.run_process(
            [sys.executable, "-m", "workers", "worker", "--data-dir", str(tmp_path), "query"], check=False
        )
        assert done.returncode == 2
        assert "SLUICE_HTTP_PORT" in done.stderr.decode()
        assert "Traceback" not in done.stderr.decode()
        assert lone.worker.returncode is None
