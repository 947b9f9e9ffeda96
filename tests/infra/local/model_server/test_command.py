import contextlib
import signal
import socket
import subprocess
import sys
import time

import httpx


def test_the_command_serves_at_its_pace_and_stops_on_a_signal():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "infra.local.model_server", "--port", str(port), "--first-token-ms", "150"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10) as client:
                _wait_until_healthy(client)
                started = time.monotonic()
                body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
                assert client.post("/v1/chat/completions", json=body).status_code == 200
                assert time.monotonic() - started >= 0.15
                # A scripted drop is no error of the server, and must not look like one in its log.
                client.post("/control/faults", json={"kind": "drop"})
                with contextlib.suppress(httpx.RemoteProtocolError):
                    client.post("/v1/chat/completions", json=body)
            process.send_signal(signal.SIGTERM)
            output, _ = process.communicate(timeout=10)
        finally:
            process.kill()
    assert output == b""


def _wait_until_healthy(client: httpx.Client) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.ConnectError):
            if client.get("/healthz").status_code == 200:
                return
        time.sleep(0.05)
    raise AssertionError("the server did not come up")
