"""Adding a toolset is a file with typed functions, and nothing else to touch."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from topics.errors import ConfigError
from workers.toolsets import load_toolset

A_FILE = '''
from flows.agent.tools import ToolContext, Toolset, tool


@tool(effect="READ")
async def opening_hours(context: ToolContext, *, day: str) -> str:
    """Say when the shop is open on a day."""
    return f"{context.tenant} opens at nine on {day}"


@tool(effect="IRREVERSIBLE", allowed_decisions=("approve", "reject"))
async def close_shop(context: ToolContext, *, days: int = 1) -> str:
    """Close the shop for some days."""
    return "closed"


hours = Toolset(name="hours", instructions="Be brief.", tools=(opening_hours, close_shop))
nothing = 3
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "acme_tools.py").write_text(A_FILE)
    monkeypatch.syspath_prepend(str(tmp_path))
    load_toolset.cache_clear()
    yield "acme_tools"
    sys.modules.pop("acme_tools", None)
    load_toolset.cache_clear()


def test_the_shipped_toolset_is_found_by_its_entry_point():
    toolset = load_toolset("retail")
    assert "cancel_pending_order" in toolset.by_name


def test_a_file_of_typed_functions_is_a_toolset(package: str):
    toolset = load_toolset(f"{package}:hours")
    read, change = toolset.tools
    assert (read.effect, read.asks) == ("READ", False)
    assert (change.effect, change.asks, change.allowed_decisions) == ("IRREVERSIBLE", True, ("approve", "reject"))
    function = read.schema()["function"]
    assert function["description"] == "Say when the shop is open on a day."
    assert function["parameters"]["required"] == ["day"]
    assert change.schema()["function"]["parameters"]["properties"]["days"] == {"default": 1, "title": "Days", "type": "integer"}


@pytest.mark.parametrize("name", ["no-such", "no.such.module:hours", "acme_tools:missing", "acme_tools:nothing"])
@pytest.mark.usefixtures("package")
def test_a_toolset_that_is_none_is_a_wrong_setting(name: str):
    with pytest.raises(ConfigError):
        load_toolset(name)
