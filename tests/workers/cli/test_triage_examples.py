"""`sluice triage examples`: what it keeps, what it refuses before anything is kept, and what it shows."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from infra.local.data import datasets
from infra.local.ports import HOST, free_port
from infra.settings import Settings
from tests.infra.models.served import serving
from workers.cli.main import main

Said = tuple[int, str, str]
Examples = Callable[..., Said]


@pytest.fixture(scope="module")
def server_url() -> Iterator[str]:
    with serving() as url:
        yield url


@pytest.fixture
def examples(
    redis_url: str,
    server_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Examples:
    """Run a command with a Redis prefix of this test's own: its exit code, and what it said."""
    for name in Settings.model_fields:
        monkeypatch.delenv(f"SLUICE_{name.upper()}", raising=False)
    monkeypatch.setenv("SLUICE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("SLUICE_REDIS_URL", redis_url)
    monkeypatch.setenv("SLUICE_REDIS_PREFIX", f"test-{abs(hash(request.node.nodeid))}")
    monkeypatch.setenv("SLUICE_MODEL_BASE_URL", f"{server_url}/v1")

    def run(*arguments: str, stdin: bytes = b"") -> Said:
        monkeypatch.setattr(sys, "argv", ["sluice", "triage", "examples", *arguments])
        monkeypatch.setattr(sys, "stdin", type("Stdin", (), {"buffer": type("Raw", (), {"read": staticmethod(lambda: stdin)})})())
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        said = capfd.readouterr()
        return int(end.value.code or 0), said.out, said.err

    return run


def line(ticket_id: str = "T-1", **changed: Any) -> dict[str, Any]:
    fields = {"body": "jane lost her card", "intent": "card_arrival", "priority": "low", "needs_person": False, "summary": "s"}
    return {"ticket_id": ticket_id, **fields, **changed}


def lines(*rows: dict[str, Any]) -> bytes:
    return "\n".join(map(json.dumps, rows)).encode()


def value(said: Said) -> Any:
    code, out, err = said
    assert (code, err) == (0, ""), err or out
    return json.loads(out)


def error(said: Said) -> tuple[int, dict[str, str]]:
    code, out, err = said
    assert err == ""
    return code, json.loads(out)["error"]


def listed(examples: Examples, tenant: str = "acme") -> Sequence[str]:
    return [one["example_id"] for one in value(examples("list", "--tenant", tenant, "--json"))["examples"]]


def test_examples_are_added_from_a_file_once_however_often_and_for_their_tenant_alone(examples: Examples, tmp_path: Path):
    tickets = datasets.tickets()[:20]
    file = tmp_path / "examples.jsonl"
    file.write_bytes(lines(*(line(one.ticket_id, body=one.text, intent=one.intent) for one in tickets)) + b"\n\n")
    add = ("add", "--tenant", "acme", "--file", str(file), "--json")
    first = value(examples(*add))
    assert (first["added"], first["replaced"], first["examples"], len(first["version"])) == (20, 0, 20, 8)
    again = value(examples(*add))
    assert again == first | {"added": 0, "replaced": 20}
    assert set(listed(examples)) == {one.ticket_id for one in tickets}
    assert value(examples("list", "--tenant", "globex", "--json")) == {"tenant": "globex", "version": None, "examples": []}


def test_texts_are_shown_only_to_whoever_asks_for_them(examples: Examples):
    value(examples("add", "--tenant", "acme", "--json", stdin=lines(line(title="jane's", summary="about jane"))))
    for more in ((), ("--json",)):
        assert "jane" not in examples("list", "--tenant", "acme", *more)[1]
        assert "jane" in examples("list", "--tenant", "acme", "--reveal", *more)[1]
    (hidden,) = value(examples("list", "--tenant", "acme", "--json"))["examples"]
    assert (hidden["intent"], hidden["priority"], hidden["needs_person"]) == ("card_arrival", "low", False)
    assert (hidden["title"], hidden["body"], hidden["summary"]) == (None, None, None)
    (shown,) = value(examples("list", "--tenant", "acme", "--reveal", "--json"))["examples"]
    assert (shown["title"], shown["body"], shown["summary"]) == ("jane's", "jane lost her card", "about jane")


def test_one_goes_by_its_id_or_all_go_and_the_version_follows(examples: Examples):
    one = value(examples("add", "--tenant", "acme", "--json", stdin=lines(line("T-1"))))
    two = value(examples("add", "--tenant", "acme", "--json", stdin=lines(line("T-2"), line("T-3"))))
    assert two["version"] != one["version"]
    assert value(examples("remove", "T-2", "--tenant", "acme", "--json"))["examples"] == 2
    left = value(examples("remove", "T-3", "--tenant", "acme", "--json"))
    assert left == {"tenant": "acme", "removed": 1, "examples": 1, "version": one["version"]}
    assert error(examples("remove", "T-3", "--tenant", "acme", "--json")) == (
        1,
        {"code": "unknown", "message": "tenant acme has no example T-3"},
    )
    assert error(examples("remove", "T-1", "--tenant", "globex", "--json"))[1]["code"] == "unknown"
    for _ in range(2):
        assert value(examples("remove", "--all", "--tenant", "acme", "--json"))["version"] is None
    assert examples("list", "--tenant", "acme") == (0, "acme has no examples.\n", "")


@pytest.mark.parametrize(
    ("stdin", "code", "words"),
    [
        (lines(line()) + b"\n{bad", "malformed", ("line 2", "nothing was kept")),
        (lines(line(), line("T-2", intent="jane")), "malformed", ("line 2", "intent", "flows/intents.py")),
        (
            lines(line(), line("T-2", priority="jane"), line("T-3", extra="jane")),
            "malformed",
            ("line 2", "priority", "line 3", "extra"),
        ),
        (lines(line(), line()), "malformed", ("line 2", "same ticket")),
        (b"\xff", "not_utf8", ("UTF-8", "nothing was kept")),
        (b" \n\n", "config", ("no example",)),
    ],
)
def test_a_bad_line_means_that_nothing_is_kept(examples: Examples, stdin: bytes, code: str, words: tuple[str, ...]):
    ended, told = error(examples("add", "--tenant", "acme", "--json", stdin=stdin))
    assert (ended != 0, told["code"]) == (True, code)
    assert all(word in told["message"] for word in words), told
    assert "jane" not in told["message"]
    assert listed(examples) == []


def test_more_than_a_tenant_may_have_are_not_kept(examples: Examples, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("infra.redis.examples.RedisExamples.__init__.__kwdefaults__", {"dimensions": 384, "most": 2})
    ended, told = error(examples("add", "--tenant", "acme", "--json", stdin=lines(*(line(f"T-{number}") for number in range(3)))))
    assert (ended, told["code"]) == (1, "too_many_examples")
    assert listed(examples) == []


def test_too_many_are_refused_before_anybody_pays_for_their_vectors(examples: Examples, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("infra.redis.examples.RedisExamples.__init__.__kwdefaults__", {"dimensions": 384, "most": 2})
    value(examples("add", "--tenant", "acme", "--json", stdin=lines(line("T-1"), line("T-2"))))
    monkeypatch.setenv("SLUICE_MODEL_BASE_URL", f"http://{HOST}:{free_port()}/v1")
    above, known = lines(line("T-2"), line("T-3")), lines(line("T-2"))
    assert error(examples("add", "--tenant", "acme", "--json", stdin=above))[1]["code"] == "too_many_examples"
    assert error(examples("add", "--tenant", "acme", "--json", stdin=known))[1]["code"] == "unavailable"


@pytest.mark.parametrize("chosen", [(), ("T-1", "--all")])
def test_what_is_to_be_removed_must_be_said_once(examples: Examples, chosen: tuple[str, ...]):
    assert error(examples("remove", *chosen, "--tenant", "acme", "--json"))[1]["code"] == "config"


@pytest.mark.parametrize("tenant", ["", " ", "a/b"])
@pytest.mark.parametrize("verb", [("add",), ("list",), ("remove", "--all")], ids=" ".join)
def test_without_a_tenant_that_records_may_be_of_nothing_is_done(examples: Examples, verb: tuple[str, ...], tenant: str):
    ended, told = error(examples(*verb, "--tenant", tenant, "--json", stdin=lines(line())))
    assert (ended, told["code"]) == (2, "config")
    assert "letters, digits" in told["message"]


@pytest.mark.parametrize("setting", ["REDIS_URL", "MODEL_BASE_URL"])
def test_a_server_that_is_away_is_one_sentence(examples: Examples, setting: str, monkeypatch: pytest.MonkeyPatch):
    scheme = "redis" if setting == "REDIS_URL" else "http"
    monkeypatch.setenv(f"SLUICE_{setting}", f"{scheme}://{HOST}:{free_port()}")
    code, out, err = examples("add", "--tenant", "acme", stdin=lines(line()))
    assert (code != 0, out, err.count("\n")) == (True, "", 1)
    assert err.startswith("sluice: ")


def test_a_missing_file_is_named(examples: Examples):
    assert "/nowhere/at/all" in error(examples("add", "--tenant", "acme", "--file", "/nowhere/at/all", "--json"))[1]["message"]
