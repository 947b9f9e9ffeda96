import json
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from infra.foreign_tracing import VARIABLES, is_hidden, refuse_foreign_tracing, switched_on
from tests.infra.test_redaction import CASE_40
from topics.errors import ConfigError

ROOT = Path(__file__).parents[2]
INFO = {
    "batch_ingest_config": {
        "use_multipart_endpoint": False,
        "size_limit": 100,
        "size_limit_bytes": 20_000_000,
        "scale_up_qsize_trigger": 1000,
        "scale_up_nthreads_limit": 1,
        "scale_down_nempty_trigger": 4,
    }
}
HIDDEN = {"LANGSMITH_HIDE_INPUTS": "true", "LANGSMITH_HIDE_OUTPUTS": "true"}


@pytest.mark.parametrize("value", ["true", "True", "1", "yes", " on "])
@pytest.mark.parametrize("name", ["LANGSMITH_TRACING", "LANGSMITH_TRACING_V2", "LANGCHAIN_TRACING", "LANGCHAIN_TRACING_V2"])
def test_tracing_to_somebody_else_is_refused_unless_inputs_and_outputs_are_hidden(name, value):
    """P11."""
    with pytest.raises(ConfigError, match=f"^{name} switches LangSmith tracing on.*unset it.*LANGSMITH_HIDE_INPUTS=true"):
        refuse_foreign_tracing({name: value})
    with pytest.raises(ConfigError):
        refuse_foreign_tracing({name: value, "LANGSMITH_HIDE_INPUTS": "true"})
    with pytest.raises(ConfigError):
        refuse_foreign_tracing({name: value, "LANGSMITH_HIDE_INPUTS": "1", "LANGSMITH_HIDE_OUTPUTS": "1"})  # read as no there
    assert refuse_foreign_tracing({name: value} | HIDDEN) == f"{name} traces to LangSmith, without inputs and outputs, and redacted"


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"LANGSMITH_TRACING": "false"},
        {"LANGSMITH_TRACING": ""},
        {"LANGSMITH_API_KEY": "x", "LANGSMITH_PROJECT": "p"},
        {"LANGSMITH_TRACING_V2": "false", "LANGCHAIN_TRACING": "true"},
        HIDDEN,
    ],
)
def test_a_key_alone_or_a_switch_that_is_off_stops_nothing(found):
    assert refuse_foreign_tracing(found) is None


@pytest.mark.parametrize("name", ["LANGCHAIN_WANDB_TRACING", "LANGCHAIN_COMET_TRACING", "LANGCHAIN_HANDLER"])
def test_tracers_that_can_hide_nothing_are_always_refused(name):
    with pytest.raises(ConfigError, match=f"^{name} .*unset it"):
        refuse_foreign_tracing({name: "true"} | HIDDEN)


def test_tracing_that_code_switched_on_is_refused_too():
    with pytest.raises(ConfigError, match=r"^a library switches LangSmith tracing on"):
        refuse_foreign_tracing({}, is_active=True)
    assert refuse_foreign_tracing(HIDDEN, is_active=True)


def run(code: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, "; ".join(CASE_40)]
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    "environ",
    [
        {"LANGSMITH_TRACING": "true"},
        {"LANGCHAIN_TRACING_V2": "true"},
        {"LANGCHAIN_TRACING": "true"},
        {"LANGSMITH_TRACING_V2": "false", "LANGSMITH_TRACING": "true"},
        {"LANGSMITH_TRACING": "false", "LANGCHAIN_TRACING": "true"},
        {"LANGSMITH_API_KEY": "x"},
        {"LANGSMITH_TRACING": "", "LANGCHAIN_TRACING": "true"},
    ],
    ids=lambda environ: ",".join(f"{name}={value}" for name, value in environ.items()),
)
def test_we_read_the_switches_as_the_library_does(environ):
    done = run("from langsmith.utils import tracing_is_enabled; print(tracing_is_enabled())", **environ)
    assert (switched_on(environ) is not None) is (done.stdout.strip() == "True"), done.stderr


def test_a_worker_that_would_send_prompts_to_somebody_else_does_not_start():
    done = subprocess.run(
        [sys.executable, "-m", "workers", "worker"],
        cwd=ROOT,
        env={"LANGCHAIN_TRACING_V2": "true", "LANGSMITH_API_KEY": "x"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 2
    assert "sluice: LANGCHAIN_TRACING_V2 switches LangSmith tracing on" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def langsmith() -> Iterator[tuple[str, list[bytes]]]:
    """An address that takes whatever LangSmith's client sends, and what it took."""
    taken: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(json.dumps(INFO).encode())

        def do_POST(self) -> None:
            taken.append(self.rfile.read(int(self.headers["content-length"])))
            self.answer(b"{}")

        do_PATCH = do_POST  # noqa: N815 -- the name that the server looks for

        def answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", taken
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


FAILING = """
import sys
from langchain_core.runnables import RunnableLambda
from langsmith.run_trees import get_cached_client
{redact}
def fail(text):
    raise ValueError(f"cannot read {{text}}, nor Jane Roe")
try:
    RunnableLambda(fail).invoke(sys.argv[1], {{"metadata": {{"note": sys.argv[1]}}}})
except ValueError:
    pass
get_cached_client().flush(timeout=30)
"""
REDACTING = "from infra.foreign_tracing import redact_foreign_tracing; redact_foreign_tracing(str)"


@pytest.mark.parametrize("guarded", [True, False], ids=["redacted", "hidden by LangSmith's own switches alone"])
def test_what_hidden_inputs_leave_open_is_redacted_before_it_is_sent(langsmith, guarded):
    """langsmith-sdk#3328: inputs were hidden, and exception texts were not."""
    address, taken = langsmith
    code = FAILING.format(redact=REDACTING.replace("str)", "__import__('infra.redaction').redaction.redact)") if guarded else "")
    environ = {"LANGSMITH_TRACING": "true", "LANGSMITH_ENDPOINT": address, "LANGSMITH_API_KEY": "x"}
    done = run(code, **environ, **HIDDEN)
    sent = b"".join(taken).decode(errors="replace")
    assert "fail" in sent, done.stderr
    found = [one for one in (*CASE_40, "sk-test-123", "Jane Roe") if one in sent]
    assert bool(found) is not guarded
    assert "ValueError" in sent


def test_every_variable_that_decides_is_read():
    assert {"LANGSMITH_TRACING", "LANGCHAIN_TRACING_V2", "LANGSMITH_HIDE_INPUTS", "LANGCHAIN_HANDLER"} <= set(VARIABLES)
    assert is_hidden({"LANGCHAIN_HIDE_INPUTS": "true", "LANGSMITH_HIDE_OUTPUTS": "true"})
