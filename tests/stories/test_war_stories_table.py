"""The table of war stories leads to tests that are there."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = (ROOT / "docs" / "war-stories.md").read_text()
ROWS = re.findall(r"^\| (\d+) \| .* \| (`.*`) \|$", TABLE, re.MULTILINE)

# Those of the reference that are to be told again.
TOLD = {1, 2, 3, 4, 6, 8, 9, 11, 12, 13, 15, 16, 17, 19, 20, 21, 22, 24, 27, 28, 29, 30, 32, 33, 41}


def test_every_story_is_told_once():
    assert [int(number) for number, _ in ROWS] == sorted(TOLD)


def test_every_story_names_tests_that_are_there():
    named = [place.split("::") for _, places in ROWS for place in re.findall(r"`([^`]+)`", places)]
    missing = [place for place in named if len(place) != 2 or place[1] not in defined_in(ROOT / place[0])]
    assert missing == []


def defined_in(path: Path) -> set[str]:
    found = ast.walk(ast.parse(path.read_text())) if path.exists() else ()
    return {one.name for one in found if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
