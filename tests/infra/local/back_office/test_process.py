"""The back office as a process of its own, on the whole shop."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from infra.local.ports import free_port

ROOT = Path(__file__).parents[4]
DEADLINE_S = 30.0


def command(port: int, folder: Path) -> list[str]:
    return [sys.executable, "-m", "infra.local.back_office", "--port", str(port), "--data", str(folder)]


@contextmanager
def serving(folder: Path) -> Iterator[tuple[httpx.Client, subprocess.Popen[bytes]]]:
    port = free_port()
    process = subprocess.Popen(command(port, folder), cwd=ROOT)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=10) as client:
            wait_until_well(client, process)
            yield client, process
    finally:
        process.kill()
        process.wait()


def wait_until_well(client: httpx.Client, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        assert process.poll() is None, "it ended at start"
        try:
            client.get("/healthz").raise_for_status()
        except httpx.TransportError:
            time.sleep(0.02)
        else:
            return
    pytest.fail("it was not ready in time")


def test_an_effect_survives_a_kill_and_its_key_still_holds(tmp_path: Path) -> None:
    path = "/v1/acme/operations/cancel_pending_order"
    arguments = {"order_id": "#W5199551", "reason": "no longer needed"}
    headers = {"Idempotency-Key": "k"}
    with serving(tmp_path / "new") as (client, process):
        first = client.post(path, json=arguments, headers=headers)
        process.send_signal(signal.SIGKILL)
        process.wait()
    with serving(tmp_path / "new") as (client, _):
        assert client.get("/v1/acme/effects/k").json()["result"] == first.json()["result"]
        assert client.post(path, json=arguments, headers=headers).json() == first.json()
        assert client.get("/v1/journal/summary").json()["effects"] == 1
        second = subprocess.run(
            command(free_port(), tmp_path / "new"), cwd=ROOT, capture_output=True, check=False, timeout=DEADLINE_S
        )
        assert second.returncode == 2
        assert b"locked" in second.stderr
