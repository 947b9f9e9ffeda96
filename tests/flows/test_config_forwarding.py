"""Case 30 (iii): what runs in a thread pool of the loop loses its configuration, tenant and callbacks included."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOSES_CONTEXT = {"run_in_executor", "submit", "ThreadPoolExecutor"}
EMBEDDED = ROOT / "infra" / "local"


def names_in(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Name):
            yield node.id


def test_nothing_runs_where_the_configuration_of_its_run_would_be_lost():
    """The `to_thread` of anyio and asyncio copies the context; a loop's own executor does not."""
    files = [
        path for package in ("flows", "infra", "workers") for path in (ROOT / package).rglob("*.py") if EMBEDDED not in path.parents
    ]
    assert len(files) > 100
    assert {str(path.relative_to(ROOT)) for path in files if LOSES_CONTEXT & set(names_in(path))} == set()
