"""`sluice approvals rebuild`: what it says, and when it fails."""

import json
from typing import Any

import pytest

from tests.flows.approvals.test_machine import asked
from workers.cli import rebuild as command
from workers.cli.main import main
from workers.rebuild import Difference, Rebuilt, differences

MISSING = Difference("acme", "a1", "missing")
DIFFERS = Difference("globex", "a2", "differs")


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Rebuilt]:
    """What the next rebuild finds."""
    results: list[Rebuilt] = []

    async def rebuild(_: Any, *, only_compare: bool) -> Rebuilt:
        assert only_compare == (results[0].restored == 0)
        return results[0]

    monkeypatch.setattr(command, "rebuild", rebuild)
    return results


def ran(*words: str) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["sluice", "approvals", "rebuild", *words])
        with pytest.raises(SystemExit) as ended:
            main()
    return int(ended.value.code or 0)


def test_a_comparison_names_what_differs_and_fails(found: list[Rebuilt], capsys: pytest.CaptureFixture[str]):
    found.append(Rebuilt(2, 1, (MISSING, DIFFERS)))
    assert ran("--compare") == 1
    assert capsys.readouterr().out.splitlines() == [
        "2 approvals on the topics, 1 in Redis",
        "missing: acme a1",
        "differs: globex a2",
    ]


def test_a_comparison_of_equals_succeeds(found: list[Rebuilt], capsys: pytest.CaptureFixture[str]):
    found.append(Rebuilt(2, 2, ()))
    assert ran("--compare") == 0
    assert capsys.readouterr().out.splitlines() == ["2 approvals on the topics, 2 in Redis", "they tell the same"]


def test_a_rebuild_says_what_it_put_back_and_what_it_left(found: list[Rebuilt], capsys: pytest.CaptureFixture[str]):
    found.append(Rebuilt(2, 1, (MISSING, DIFFERS), restored=1))
    assert ran() == 0
    assert capsys.readouterr().out.splitlines() == [
        "2 approvals on the topics, 1 in Redis",
        "differs: globex a2",
        "1 put back",
    ]


def test_programs_get_one_value(found: list[Rebuilt], capsys: pytest.CaptureFixture[str]):
    found.append(Rebuilt(2, 1, (MISSING,)))
    assert ran("--compare", "--json") == 1
    assert json.loads(capsys.readouterr().out)["differences"] == [{"tenant": "acme", "approval_id": "a1", "what": "missing"}]


def test_only_what_is_told_otherwise_differs():
    """That the broker has a request is no difference: the topic itself shows it."""
    one = asked()
    name = ("acme", "a1")
    told = one.model_copy(update={"announced": True})
    assert differences({name: told}, {name: one}) == []
    assert differences({name: told}, {name: one.changed(level=1)}) == [Difference("acme", "a1", "differs")]
    assert differences({}, {name: one}) == [Difference("acme", "a1", "untold")]
    assert differences({name: told}, {}) == [Difference("acme", "a1", "missing")]
