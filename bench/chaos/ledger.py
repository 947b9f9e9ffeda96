"""The append-only ledger: one file of JSON lines for each process that writes, in one folder.

A line is one `write` to a file opened for appending, so that whatever a process said is there after it was killed; only its last
line may be torn.
"""

import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import orjson

from bench.chaos.facts import Fact, from_json, to_json


def now_ns() -> int:
    """The clock of the ledger: monotonic, and the same for all processes of the machine."""
    return time.monotonic_ns()


class Ledger:
    """What one process writes. `who` is the name of its file."""

    def __init__(self, folder: Path, who: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.who = who
        self._file = os.open(folder / f"{who}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, fact: Fact) -> None:
        """Append one fact."""
        os.write(self._file, orjson.dumps(to_json(fact)) + b"\n")

    def close(self) -> None:
        """Nothing more will be written."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Reader:
    """Reads what all writers of a folder have added since it was last asked."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._positions: dict[Path, int] = {}

    def news(self) -> list[Fact]:
        """New facts, by time. A line without its end is left for the next call, or for ever when its writer was killed."""
        found = [fact for path in sorted(self._folder.glob("*.jsonl")) for fact in self._added(path)]
        return sorted(found, key=lambda fact: fact.at_ns)

    def _added(self, path: Path) -> list[Fact]:
        position = self._positions.get(path, 0)
        with path.open("rb") as file:
            file.seek(position)
            whole, end, _ = file.read().rpartition(b"\n")
        self._positions[path] = position + len(whole) + len(end)
        return [from_json(orjson.loads(line)) for line in whole.splitlines() if line]


def read(folder: Path) -> list[Fact]:
    """Everything that was written, by time."""
    return Reader(folder).news()
