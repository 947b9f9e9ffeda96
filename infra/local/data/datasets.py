"""Load the data beside this file. Every call reads anew, so that nobody sees another's changes."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

_ROOT: Final = Path(__file__).parent

Split = Literal["test", "dev", "train"]


@dataclass(frozen=True, slots=True)
class Ticket:
    """What somebody asked their bank, and the intent that annotators gave it."""

    ticket_id: str
    text: str
    intent: str


@dataclass(frozen=True, slots=True)
class Article:
    """A help article of one tenant, `wix` or `ibm`."""

    article_id: str
    tenant: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Question:
    """A question of one tenant's customer. `answer` is None and `article_ids` empty when no article answers it."""

    question_id: str
    tenant: str
    text: str
    answer: str | None
    article_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RetailAction:
    """One tool call of a task's right solution."""

    name: str
    arguments: dict[str, Any]
    mutates: bool


@dataclass(frozen=True, slots=True)
class RetailChange:
    """A record as it must be in the end. `key` is the record's id in `table` (`orders`, `users`)."""

    table: str
    key: str
    after: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RetailTask:
    """What a customer wants, the calls that do it, what the reply must contain, and the records it changes."""

    task_id: str
    user_id: str
    instruction: str
    actions: tuple[RetailAction, ...]
    outputs: tuple[str, ...]
    expected_changes: tuple[RetailChange, ...]


def tickets() -> tuple[Ticket, ...]:
    """400 tickets with all 77 intents, shuffled."""
    return tuple(Ticket(**row) for row in _rows("tickets/tickets.jsonl.gz"))


def intents() -> tuple[str, ...]:
    """The 77 intents."""
    return tuple(json.loads((_ROOT / "tickets/intents.json").read_bytes()))


def articles() -> tuple[Article, ...]:
    """173 articles of `wix` and 160 of `ibm`."""
    return tuple(Article(**row) for row in _rows("articles/articles.jsonl.gz"))


def questions() -> tuple[Question, ...]:
    """Questions whose relevant articles are all among `articles()`, and 40 of `ibm` that none answers."""
    return tuple(_question(row) for row in _rows("articles/questions.jsonl.gz"))


def retail_seed() -> dict[str, dict[str, Any]]:
    """The shop's start state, yours to change: `{"orders": {id: order}, "products": {id: product}, "users": {id: user}}`."""
    return {table: json.loads(_unzip(f"retail/{table}.json.gz")) for table in ("orders", "products", "users")}


def retail_tasks(split: Split = "test") -> tuple[RetailTask, ...]:
    """115 tasks of `test`, 20 of `dev` or 500 of `train`, in the source's order."""
    return tuple(_retail_task(row) for row in _rows(f"retail/tasks_{split}.jsonl.gz"))


def retail_observations() -> dict[str, tuple[str | None, ...]]:
    """What each action of each `test` task returned, by task id; None for a hand-over to a person."""
    return {row["id"]: tuple(row["observations"]) for row in _rows("retail/observations_test.jsonl.gz")}


def retail_policy() -> str:
    """What the shop's agent is told."""
    return (_ROOT / "retail/policy.md").read_text(encoding="utf-8")


def retail_tools() -> list[dict[str, Any]]:
    """The shop's tools as OpenAI functions."""
    return json.loads((_ROOT / "retail/tools.json").read_bytes())


def tokenizer_path() -> Path:
    """The tokenizer of all-MiniLM-L6-v2."""
    return _ROOT / "minilm/tokenizer.json"


def triage_weights_path() -> Path:
    """Weights of the intent classifier: `labels`, `weights` (384, 77) and `bias`, made by bench/train_triage.py."""
    return _ROOT / "tickets/triage_weights.npz"


def _question(row: dict[str, Any]) -> Question:
    return Question(
        question_id=row["question_id"],
        tenant=row["tenant"],
        text=row["text"],
        answer=row["answer"],
        article_ids=tuple(row["article_ids"]),
    )


def _retail_task(row: dict[str, Any]) -> RetailTask:
    return RetailTask(
        task_id=row["id"],
        user_id=row["user_id"],
        instruction=row["instruction"],
        actions=tuple(RetailAction(a["name"], a["kwargs"], a["mutates"]) for a in row["actions"]),
        outputs=tuple(row["outputs"]),
        expected_changes=tuple(RetailChange(**change) for change in row["expected_changes"]),
    )


def _rows(name: str) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in _unzip(name).splitlines())


def _unzip(name: str) -> bytes:
    return gzip.decompress((_ROOT / name).read_bytes())
