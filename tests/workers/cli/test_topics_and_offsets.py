"""Commands about topics and positions: what they print, and what they refuse."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from infra.local.ports import HOST, free_port
from workers.cli import offsets, output, topics


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SLUICE_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("SLUICE_KAFKA_BOOTSTRAP", f"{HOST}:{free_port()}")


def test_rights_are_printed_without_asking_a_cluster_one_command_a_line():
    told = CliRunner().invoke(topics.app, ["plan", "--acls", "--principal", "User:CN={role},O=shop"])
    lines = told.stdout.splitlines()
    assert told.exit_code == 0
    assert all(line.startswith("kafka-acls --bootstrap-server ") and "--allow-principal User:CN=" in line for line in lines)
    (decides,) = [line for line in lines if "--operation Write" in line and line.endswith(" approvals.decisions")]
    assert "User:CN=approver,O=shop" in decides


def test_rights_are_data_too():
    entries = json.loads(CliRunner().invoke(topics.app, ["plan", "--acls", "--json"]).stdout)
    assert {"role", "principal", "resource", "name", "pattern", "operations"} == entries[0].keys()
    assert {"group", "topic"} == {one["resource"] for one in entries}


def test_a_table_that_goes_into_a_pipe_keeps_each_row_on_one_line(capsys: pytest.CaptureFixture[str]):
    group = "sluice-of-a-long-name.ingestion"
    output.print_table(("group", "topic", "state"), [(group, "approvals.decisions.replay", "x" * 80)])
    (line,) = [line for line in capsys.readouterr().out.splitlines() if group in line]
    assert "approvals.decisions.replay" in line
    assert "x" * 80 in line


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["show"], 2, "config"),
        (["show", "--group", "nobody"], 1, "unknown"),
        (["changes", "--group", "nobody"], 1, "unknown"),
        (["set", "--group", "sluice.query", "--to", "earliest"], 1, "reason_missing"),
        (["set", "--group", "sluice.query", "--to", "noon", "--because", "x"], 1, "bad_target"),
        (["set", "--group", "nobody", "--to", "earliest", "--because", "x"], 1, "unknown"),
        (["set", "--group", "sluice.query", "--to", "earliest", "--because", "x"], 2, "config"),
        (["set", "--group", "sluice.query", "--to", "earliest", "--dry-run"], 2, "config"),
    ],
)
def test_what_cannot_be_done_is_told_by_its_code(arguments: list[str], code: int, reason: str):
    told = CliRunner().invoke(offsets.app, [*arguments, "--json"])
    assert (told.exit_code, json.loads(told.stdout)["error"]["code"]) == (code, reason)
