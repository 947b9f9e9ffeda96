"""python -m bench.figures.unguarded DATA_DIR WORKER ...: a worker whose search forgot its filters and its last check.

It stands for the fault that the audit of tenants must see. Never a part of anything that runs for people.
"""

import sys
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, Literal
from unittest import mock

import anyio

from bench.figures.marks import TENANTS
from flows.ports import Passage
from flows.retrieval import HybridRetriever
from infra.redis.examples import RedisExamples
from infra.redis.search import Hit, RedisArticleIndex
from infra.settings import load_settings
from infra.telemetry import configure_logging
from topics.example import Example
from workers.app import run_workers

Branch = Literal["lexical", "nearest"]
BOTH: Final[tuple[Branch, ...]] = ("lexical", "nearest")


class UnfilteredIndex:
    """An index of which some branches forgot their filter: they give each tenant's best passages to everybody."""

    def __init__(self, index: RedisArticleIndex, *, without: Collection[Branch]) -> None:
        self._index = index
        self._without = without

    async def lexical(self, tenant: str, words: str, limit: int) -> Sequence[Hit]:
        """Passages that share words with a text."""
        return _best(
            [hit for one in self._seen_by(tenant, "lexical") for hit in await self._index.lexical(one, words, limit)], limit
        )

    async def nearest(self, tenant: str, vector: Sequence[float], limit: int) -> Sequence[Hit]:
        """Passages whose vectors point the same way."""
        return _best(
            [hit for one in self._seen_by(tenant, "nearest") for hit in await self._index.nearest(one, vector, limit)], limit
        )

    def _seen_by(self, tenant: str, branch: Branch) -> Sequence[str]:
        return TENANTS if branch in self._without else (tenant,)


class UncheckedRetriever(HybridRetriever):
    """The retriever without its last look at whose passages it gives."""

    def _checked(self, tenant: str, passages: Sequence[Any]) -> list[Any]:
        del tenant
        return list(passages)


class UnguardedRetriever(UncheckedRetriever):
    """The retriever without any guard, for who builds one as workers do."""

    def __init__(self, *, branches: RedisArticleIndex, **others: Any) -> None:
        super().__init__(branches=UnfilteredIndex(branches, without=BOTH), **others)

    async def search(self, *, tenant: str, query: str, limit: int) -> Sequence[Passage]:
        """Anybody's passages, under the asker's name: by any other the agent drops them."""
        return [replace(one, tenant=tenant) for one in await super().search(tenant=tenant, query=query, limit=limit)]


class UnguardedExamples(RedisExamples):
    """Examples of triage without the filter: anybody's, under the asker's name, since triage looks at that too."""

    async def nearest(self, tenant: str, vector: Sequence[float], limit: int) -> Sequence[Example]:
        """The best of every tenant, by turns."""
        found = [await super(UnguardedExamples, self).nearest(one, vector, limit) for one in TENANTS]
        return [replace(one, tenant=tenant) for row in zip_longest(*found) for one in row if one is not None][:limit]


@contextmanager
def no_guards() -> Generator[None]:
    """Whoever builds a process's parts within this block gets searches without guards."""
    with mock.patch.multiple("workers.parts", HybridRetriever=UnguardedRetriever, RedisExamples=UnguardedExamples):
        yield


def _best(hits: Sequence[Hit], limit: int) -> Sequence[Hit]:
    return sorted(hits, key=lambda hit: -hit.score)[:limit]


def main() -> None:
    """Run it until SIGTERM."""
    folder, *workers = sys.argv[1:]
    settings = load_settings(data_dir=Path(folder))
    configure_logging(settings.log_level)
    with no_guards():
        anyio.run(run_workers, settings, workers)


if __name__ == "__main__":
    main()
