"""What the back office keeps, in one SQLite file: changed rows, the journal, and the answers to keyed calls.

A call's rows, its journal entry and its recorded answer are one transaction. Every method runs to its end without awaiting, so
two calls never overlap; a commit blocks the event loop for the milliseconds of one fsync, which a stand-in can afford.
"""

import json
import sqlite3
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from infra.local.back_office.tables import Operation, RefusedError, Row, RowKey, Seed, Tables
from topics.errors import ConfigError

Outcome = Literal["applied", "refused"]

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS rows (
    tenant TEXT NOT NULL, tbl TEXT NOT NULL, key TEXT NOT NULL, json TEXT NOT NULL, PRIMARY KEY (tenant, tbl, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS journal (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, tenant TEXT NOT NULL, operation TEXT NOT NULL,
    arguments TEXT NOT NULL, idempotency_key TEXT, outcome TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS journal_by_tenant ON journal (tenant, sequence);
CREATE TABLE IF NOT EXISTS answers (
    tenant TEXT NOT NULL, idempotency_key TEXT NOT NULL, operation TEXT NOT NULL, arguments TEXT NOT NULL,
    outcome TEXT NOT NULL, text TEXT NOT NULL, repeats INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (tenant, idempotency_key)
) WITHOUT ROWID;
"""
_JOURNAL: Final = "SELECT * FROM journal WHERE tenant = ? AND sequence > ? ORDER BY sequence"
_TOTALS: Final = """
SELECT count(*) FILTER (WHERE outcome = 'applied') AS effects, count(*) FILTER (WHERE outcome = 'refused') AS refusals,
    count(DISTINCT tenant) AS tenants FROM journal
"""
_SAME_KEY: Final = """
SELECT tenant, idempotency_key, count(*) - 1 AS extra, group_concat(sequence) AS sequences FROM journal
WHERE outcome = 'applied' AND idempotency_key IS NOT NULL GROUP BY tenant, idempotency_key HAVING extra > 0
"""
_SAME_CALL: Final = """
SELECT tenant, operation, count(*) - 1 AS extra, group_concat(sequence) AS sequences FROM journal
WHERE outcome = 'applied' GROUP BY tenant, operation, arguments HAVING extra > 0
"""


class KeyReusedError(ValueError):
    """The idempotency key belongs to another call. Nothing changed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call came to. `repeated`: it is the recorded answer of an earlier call, and nothing was applied now."""

    outcome: Outcome
    text: str
    repeated: bool = False


def _now() -> datetime:
    return datetime.now(UTC)


class Store:
    """One file, one owner: a second process that opens it is refused."""

    def __init__(self, path: Path, *, seed: Seed, operations: Mapping[str, Operation], now: Callable[[], datetime] = _now) -> None:
        """Open the file, or make it.

        Raises:
            ConfigError: The file cannot be opened, is no database, or another process has it.
        """
        self.operations: Final = operations
        self._seed: Final = seed
        self._now: Final = now
        self._changed: Final[dict[str, dict[RowKey, Row]]] = {}
        self._db: Final = _open(path)

    def close(self) -> None:
        """Close the file; everything acknowledged is in it already."""
        self._db.close()

    def run(
        self,
        tenant: str,
        operation: Operation,
        arguments: Mapping[str, Any],
        *,
        key: str | None,
        ignore_key: bool = False,
    ) -> Answer:
        """Run a call on checked arguments, once per key. Durable on return.

        Args:
            ignore_key: Apply whatever was applied before under this key, as a careless service would.

        Raises:
            KeyReusedError: The key was used for another operation or other arguments. Nothing changed.
        """
        if not operation.mutates:
            return _attempt(operation, Tables(self._seed, self._rows_of(tenant)), arguments)
        canonical = json.dumps(arguments, sort_keys=True)
        if key is not None and not ignore_key:
            recorded = self._recorded(tenant, operation.name, canonical, key=key)
            if recorded is not None:
                return recorded
        return self._apply(tenant, operation, arguments, canonical=canonical, key=key)

    def recorded(self, tenant: str, key: str) -> Answer | None:
        """What a keyed call came to, or None when it never ran."""
        row = self._db.execute("SELECT * FROM answers WHERE tenant = ? AND idempotency_key = ?", (tenant, key)).fetchone()
        return None if row is None else Answer(row["outcome"], row["text"], repeated=True)

    def journal(self, tenant: str, *, after: int = 0) -> list[Row]:
        """Every mutation that was applied or refused, oldest first, from the sequence behind `after`."""
        rows = self._db.execute(_JOURNAL, (tenant, after))
        return [dict(row) | {"arguments": json.loads(row["arguments"])} for row in rows]

    def summary(self) -> Row:
        """Counts over all tenants.

        Returns:
            `effects`, `refusals`, `tenants`; `repeats` answered from the record; `double_effects`, applications beyond the
            first under one key, and `repeated_calls`, beyond the first of one tenant, operation and arguments, both with the
            journal sequences that show them. The second holds honest repeats too: an address changed there and back again.
        """
        same_key = [dict(row) for row in self._db.execute(_SAME_KEY)]
        same_call = [dict(row) for row in self._db.execute(_SAME_CALL)]
        repeats = self._db.execute("SELECT coalesce(sum(repeats), 0) FROM answers").fetchone()[0]
        return dict(self._db.execute(_TOTALS).fetchone()) | {
            "repeats": repeats,
            "double_effects": sum(row["extra"] for row in same_key),
            "repeated_calls": sum(row["extra"] for row in same_call),
            "doubles": [_shown(row) for row in same_key],
            "repeated": [_shown(row) for row in same_call],
        }

    def changes(self, tenant: str) -> list[Row]:
        """Every record that differs from the seed now."""
        return [
            {"table": table, "key": key, "after": row}
            for (table, key), row in sorted(self._rows_of(tenant).items())
            if self._seed[table].get(key) != row
        ]

    def reset(self) -> None:
        """Forget every tenant, the journal and the recorded answers."""
        self._changed.clear()
        with self._transaction():
            for table in ("rows", "journal", "answers"):
                self._db.execute(f"DELETE FROM {table}")  # noqa: S608 - the names stand one line above

    def _recorded(self, tenant: str, operation: str, canonical: str, *, key: str) -> Answer | None:
        row = self._db.execute("SELECT * FROM answers WHERE tenant = ? AND idempotency_key = ?", (tenant, key)).fetchone()
        if row is None:
            return None
        if (row["operation"], row["arguments"]) != (operation, canonical):
            raise KeyReusedError("this idempotency key belongs to another call")
        with self._transaction():
            self._db.execute("UPDATE answers SET repeats = repeats + 1 WHERE tenant = ? AND idempotency_key = ?", (tenant, key))
        return Answer(row["outcome"], row["text"], repeated=True)

    def _apply(self, tenant: str, operation: Operation, arguments: Mapping[str, Any], *, canonical: str, key: str | None) -> Answer:
        changed = self._rows_of(tenant)
        tables = Tables(self._seed, changed)
        answer = _attempt(operation, tables, arguments)
        pending = tables.pending if answer.outcome == "applied" else {}
        with self._transaction():
            self._db.executemany(
                "INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?)",
                [(tenant, table, row_key, json.dumps(row)) for (table, row_key), row in pending.items()],
            )
            self._db.execute(
                "INSERT INTO journal (at, tenant, operation, arguments, idempotency_key, outcome) VALUES (?, ?, ?, ?, ?, ?)",
                (self._now().isoformat(), tenant, operation.name, canonical, key, answer.outcome),
            )
            if key is not None:
                self._db.execute(
                    "INSERT OR IGNORE INTO answers (tenant, idempotency_key, operation, arguments, outcome, text) "
                    "VALUES (?, ?, ?, ?, ?, ?)",
                    (tenant, key, operation.name, canonical, answer.outcome, answer.text),
                )
        # Only after the commit: a failed one must leave what readers see as it was.
        changed.update(pending)
        return answer

    def _rows_of(self, tenant: str) -> dict[RowKey, Row]:
        """A tenant's changed rows, read once: this process is the file's only writer."""
        if tenant not in self._changed:
            rows = self._db.execute("SELECT tbl, key, json FROM rows WHERE tenant = ?", (tenant,))
            self._changed[tenant] = {(row["tbl"], row["key"]): json.loads(row["json"]) for row in rows}
        return self._changed[tenant]

    @contextmanager
    def _transaction(self) -> Generator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")


def _attempt(operation: Operation, tables: Tables, arguments: Mapping[str, Any]) -> Answer:
    try:
        return Answer("applied", operation.run(tables, arguments))
    except RefusedError as refusal:
        return Answer("refused", str(refusal))


def _shown(row: Row) -> Row:
    return row | {"sequences": [int(sequence) for sequence in row["sequences"].split(",")]}


def _open(path: Path) -> sqlite3.Connection:
    try:
        db = sqlite3.connect(path, isolation_level=None, timeout=0.2)
        db.row_factory = sqlite3.Row
        # Exclusive: rows are cached here, and a second writer would make the cache lie.
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.executescript(_SCHEMA)
    except sqlite3.Error as error:
        raise ConfigError(f"the back office cannot open {path}: {error}") from error
    return db
