"""Tenant audit: four tenants whose articles are nearly the same, thousands of questions, and whose passages come back.

Looked at here: both branches, the fused list, and the text that the agent's search tool gives to the model; in `published`, what
workers make of it. The controls take each branch's filter away in turn: the retriever's last check must still hold, and without
that check too there must be leaks, or this audit could not see any.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any, Final

from bench.figures import judged, published
from bench.figures.bounds import hold
from bench.figures.judged import Shelf
from bench.figures.marks import TENANTS, edition, is_foreign, mark_of
from bench.figures.unguarded import BOTH, Branch, UncheckedRetriever, UnfilteredIndex
from bench.rig import print_table
from flows.agent.search import render
from flows.retrieval import BRANCH_LIMIT, Branches, HybridRetriever

ARTICLES: Final = 12
QUERIES: Final = 1_000
QUERIES_FULL: Final = 5_000
CONTROLS: Final = 100
COLUMNS: Final = ("", "queries", "passages", "full text", "vectors", "fused", "tool")


@dataclass(slots=True)
class Leaks:
    """Passages of somebody else, by where they came back."""

    queries: int = 0
    passages: int = 0
    lexical: int = 0
    nearest: int = 0
    fused: int = 0
    tool: int = 0

    @property
    def shown(self) -> int:
        """Behind the last check."""
        return self.fused + self.tool

    @property
    def total(self) -> int:
        """Wherever."""
        return self.lexical + self.nearest + self.shown

    def of(self, branch: Branch) -> int:
        """In one branch."""
        return self.lexical if branch == "lexical" else self.nearest


Controls = Mapping[Branch, Leaks]


class WatchedBranches:
    """Branches as the retriever asks them; whose passages they give is counted."""

    def __init__(self, branches: Branches, leaks: Leaks) -> None:
        self._branches = branches
        self._leaks = leaks

    async def lexical(self, tenant: str, words: str, limit: int) -> Sequence[Any]:
        """Passages that share words with a text."""
        found = await self._branches.lexical(tenant, words, limit)
        self._leaks.lexical += _foreign(tenant, found)
        self._leaks.passages += len(found)
        return found

    async def nearest(self, tenant: str, vector: Sequence[float], limit: int) -> Sequence[Any]:
        """Passages whose vectors point the same way."""
        found = await self._branches.nearest(tenant, vector, limit)
        self._leaks.nearest += _foreign(tenant, found)
        self._leaks.passages += len(found)
        return found


async def run(*, full: bool) -> dict[str, Any]:
    """Audit the branches, then what is published. Prints two tables.

    Raises:
        FigureError: Something leaks, or a control sees nothing.
    """
    branches = await _run_branches(QUERIES_FULL if full else QUERIES)
    answers = await published.run(full=full)
    summed = {name: branches[f"{name}_branches"] + answers[f"{name}_published"] for name in ("leaks", "leaks_control")}
    return {**branches, **answers, **summed}


async def _run_branches(queries: int) -> dict[str, Any]:
    async with judged.shelf("tenants") as shelf:
        chosen = judged.load("wixqa")
        for tenant in TENANTS:
            await judged.put(shelf, tenant, [edition(article, tenant) for article in chosen.articles[:ARTICLES]])
        asked = list(islice(_asked([question.text for question in chosen.questions]), queries))
        audit = await _audit(shelf, shelf.index, HybridRetriever, asked)
        checked = await _controls(shelf, HybridRetriever, asked[:CONTROLS])
        unchecked = await _controls(shelf, UncheckedRetriever, asked[:CONTROLS])
    return judge(audit, checked, unchecked)


async def _controls(shelf: Shelf, kind: type[HybridRetriever], asked: Sequence[tuple[str, str]]) -> Controls:
    """By the branch that has lost its filter."""
    return {branch: await _audit(shelf, UnfilteredIndex(shelf.index, without=[branch]), kind, asked) for branch in BOTH}


def judge(audit: Leaks, checked: Controls, control: Controls) -> dict[str, Any]:
    """Figures and bounds. `control` is without the last check, too."""
    without = [(f"{name} without its filter", checked[name]) for name in BOTH]
    unchecked = [(f"{name}, no last check either", control[name]) for name in BOTH]
    rows = [("audit", audit), *without, *unchecked]
    print_table(
        f"Passages of another tenant; {len(TENANTS)} tenants with {ARTICLES} nearly equal articles each",
        COLUMNS,
        [(name, one.queries, one.passages, one.lexical, one.nearest, one.fused, one.tool) for name, one in rows],
    )
    figures = {
        "audit_queries": audit.queries,
        "audit_passages": audit.passages,
        "leaks_branches": audit.total,
        "leaks_control_branches": sum(control[name].shown for name in BOTH),
        **{f"leaks_control_{name}": checked[name].of(name) for name in BOTH},
        "leaks_past_the_last_check": sum(checked[name].shown for name in BOTH),
    }
    return hold(
        figures,
        nothing_leaks=audit.total == 0,
        something_was_found=audit.passages > audit.queries,
        each_branch_leaks_without_its_filter=all(checked[name].of(name) for name in BOTH),
        the_last_check_holds=figures["leaks_past_the_last_check"] == 0,
        without_both_it_is_seen=all(control[name].fused and control[name].tool for name in BOTH),
    )


async def _audit(shelf: Shelf, branches: Branches, kind: type[HybridRetriever], asked: Sequence[tuple[str, str]]) -> Leaks:
    leaks = Leaks()
    retriever = kind(branches=WatchedBranches(branches, leaks), embedder=shelf.embedder)
    for tenant, text in asked:
        fused = await retriever.search(tenant=tenant, query=text, limit=BRANCH_LIMIT)
        leaks.queries += 1
        leaks.passages += len(fused)
        leaks.fused += _foreign(tenant, fused)
        leaks.tool += is_foreign(tenant, render(fused, first_marker=1))
    return leaks


def _foreign(tenant: str, found: Sequence[Any]) -> int:
    """Whose they are, by what is stored with them and by the mark in their own text."""
    return sum(one.tenant != tenant or is_foreign(tenant, one.text) for one in found)


def _asked(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Every question by every tenant, again and again; the second time it names somebody else's passages too."""
    plain = [(tenant, text) for text in texts for tenant in TENANTS]
    nosy = [
        (tenant, f"{text} {mark_of(other)}") for text in texts[:10] for tenant in TENANTS for other in TENANTS if other != tenant
    ]
    return cycle([*plain, *nosy])
