"""Tenant audit: four tenants whose articles are nearly the same, thousands of questions, and whose passages come back.

Looked at: both branches, the fused list, and the text that the agent's search tool gives to the model. The controls take one
branch's filter away: the retriever's last check must still hold, and without that check too there must be leaks, or this audit
could not see any.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any, Final

from bench.figures import judged
from bench.figures.bounds import hold
from bench.figures.judged import Shelf
from bench.rig import print_table
from flows.agent.search import render
from flows.ports import Passage
from flows.retrieval import BRANCH_LIMIT, HybridRetriever
from infra.redis.search import Hit, RedisArticleIndex, tenant_tag
from topics.events import ArticlePublished

TENANTS: Final = ("acme", "ACME", "acme,globex", "globex")
ARTICLES: Final = 12
QUERIES: Final = 1_000
QUERIES_FULL: Final = 5_000
CONTROLS: Final = 100


class UnfilteredBranch:
    """An index whose search by meaning forgot its filter: it gives each tenant's nearest passages to everybody."""

    def __init__(self, index: RedisArticleIndex) -> None:
        self._index = index

    async def lexical(self, tenant: str, words: str, limit: int) -> Sequence[Hit]:
        """As it should be."""
        return await self._index.lexical(tenant, words, limit)

    async def nearest(self, tenant: str, vector: Sequence[float], limit: int) -> Sequence[Hit]:
        """Without looking at who asks."""
        del tenant
        found = [hit for one in TENANTS for hit in await self._index.nearest(one, vector, limit)]
        return sorted(found, key=lambda hit: -hit.score)[:limit]


class UncheckedRetriever(HybridRetriever):
    """The retriever without its last look at whose passages it gives."""

    def _checked(self, tenant: str, passages: Sequence[Any]) -> list[Any]:
        del tenant
        return list(passages)


@dataclass
class Leaks:
    """Passages of somebody else, by where they came back."""

    lexical: int = 0
    nearest: int = 0
    fused: int = 0
    tool: int = 0
    passages: int = 0

    @property
    def total(self) -> int:
        """Wherever."""
        return self.lexical + self.nearest + self.fused + self.tool


async def run(*, full: bool) -> dict[str, Any]:
    """Plant the articles, ask, and count."""
    queries = QUERIES_FULL if full else QUERIES
    async with judged.shelf("tenants") as shelf:
        chosen = judged.load("wixqa", full=True)
        for tenant in TENANTS:
            await judged.put(shelf, tenant, [_edition(article, tenant) for article in chosen.articles[:ARTICLES]])
        texts = [question.text for question in chosen.questions]
        audit = await _audit(shelf, shelf.index, HybridRetriever, islice(_asked(texts), queries))
        broken = UnfilteredBranch(shelf.index)
        checked = await _audit(shelf, broken, HybridRetriever, islice(_asked(texts), CONTROLS))
        control = await _audit(shelf, broken, UncheckedRetriever, islice(_asked(texts), CONTROLS))
    rows = [("audit", queries, audit), ("one filter away", CONTROLS, checked), ("and no last check", CONTROLS, control)]
    print_table(
        f"Passages of another tenant; {len(TENANTS)} tenants with {ARTICLES} nearly equal articles each",
        ["", "queries", "passages", "full text", "vectors", "fused", "tool"],
        [(name, count, one.passages, one.lexical, one.nearest, one.fused, one.tool) for name, count, one in rows],
    )
    figures = {
        "audit_queries": queries,
        "audit_passages": audit.passages,
        "leaks": audit.total,
        "leaks_control": control.fused + control.tool,
        "leaks_control_branch": checked.nearest,
        "leaks_past_the_last_check": checked.fused + checked.tool,
    }
    return hold(
        figures,
        nothing_leaks=audit.total == 0,
        something_was_found=audit.passages > queries,
        the_last_check_holds=figures["leaks_past_the_last_check"] == 0 and checked.nearest > 0,
        the_control_leaks=figures["leaks_control"] > 0,
    )


async def _audit(shelf: Shelf, branches: Any, kind: type[HybridRetriever], asked: Iterator[tuple[str, str]]) -> Leaks:
    leaks = Leaks()
    retriever = kind(branches=branches, embedder=shelf.embedder)
    for tenant, text in asked:
        (vector,) = await shelf.embedder.embed([text], tenant=tenant)
        lexical = await branches.lexical(tenant, text, BRANCH_LIMIT)
        nearest = await branches.nearest(tenant, vector, BRANCH_LIMIT)
        fused = await retriever.search(tenant=tenant, query=text, limit=BRANCH_LIMIT)
        leaks.lexical += _foreign(tenant, lexical)
        leaks.nearest += _foreign(tenant, nearest)
        leaks.fused += _foreign(tenant, fused)
        leaks.tool += sum(_mark(other) in render(fused, first_marker=1) for other in TENANTS if other != tenant)
        leaks.passages += len(lexical) + len(nearest) + len(fused)
    return leaks


def _foreign(tenant: str, found: Sequence[Hit] | Sequence[Passage]) -> int:
    """Whose they are, by what is stored with them and by the mark in their own text."""
    return sum(one.tenant != tenant or any(_mark(other) in one.text for other in TENANTS if other != tenant) for one in found)


def _asked(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Every question by every tenant, again and again; the second time it names somebody else's passages too."""
    plain = [(tenant, text) for text in texts for tenant in TENANTS]
    nosy = [(tenant, f"{text} {_mark(other)}") for text in texts[:10] for tenant in TENANTS for other in TENANTS if other != tenant]
    return cycle([*plain, *nosy])


def _mark(tenant: str) -> str:
    return f"edition {tenant_tag(tenant)[:12]}"


def _edition(article: ArticlePublished, tenant: str) -> ArticlePublished:
    """The article with the tenant's mark in every paragraph, so that each passage tells whose it is."""
    sentences = article.body.replace(". ", f" ({_mark(tenant)}). ")
    own = f"{tenant_tag(tenant)[:6]}-{article.article_id}"
    return article.model_copy(update={"article_id": own, "body": f"{_mark(tenant)}. {sentences}"})
