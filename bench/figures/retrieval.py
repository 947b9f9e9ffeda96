"""Retrieval on three judged sets: full text, vectors and both fused, as `sluice` ships them.

Weights are chosen on one half of the questions, which a hash of their ids draws, and the figures are of the other half. A question
that is refused, because nothing is near enough, counts as nothing found. Each set lies in an index of its own, and all once more in
one that they share as tenants: there the rarity of a word is that among all tenants, which costs the full text of some.

Both forms ask all questions of all articles and hold the same bounds; a smaller sample has too few questions for them. The short
form takes the vectors of passages from `bench/data` and embeds the questions; the full one embeds all that `.cache` lacks.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any, Final

from bench.figures import judged, refusals
from bench.figures.bounds import hold
from bench.figures.judged import Judged, Question, Score, Shelf
from bench.figures.refusals import Asked, Found
from bench.rig import print_table
from flows.chunking import windows
from flows.retrieval import BRANCH_LIMIT, QUERY_WINDOWS, FusionPolicy, HybridRetriever, fuse, mean_direction
from infra.redis.search import Hit

SHIPPED: Final = FusionPolicy()
WEIGHTS: Final = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0, 1.5)
MEASURES: Final = ("recall_at_5", "recall_at_10", "mrr_at_10")
PASSAGES: Final = 30
BELOW_BEST: Final = 0.02
# Full text (bm25s), vectors and their fusion with equal weights as measured before, on all questions, without a tenant's filter.
BASELINES: Final = {
    "wixqa": {"full text": (0.794, 0.856, 0.675), "vectors": (0.923, 0.970, 0.829), "fused": (0.892, 0.949, 0.810)},
    "techqa": {"full text": (0.888, 0.935, 0.809), "vectors": (0.904, 0.930, 0.810), "fused": (0.924, 0.956, 0.839)},
    "rhobank_kb": {"full text": (0.220, 0.242, 0.445), "vectors": (0.287, 0.286, 0.468), "fused": (0.280, 0.307, 0.533)},
}


@dataclass(frozen=True, slots=True)
class Ranked(Found):
    """And what the retriever made of it; `crowded` is full text from an index that all sets share, and what was made of that."""

    shipped: Sequence[str]
    crowded: Found
    crowded_shipped: Sequence[str]


class Replayed:
    """Branches that give again what was found."""

    def __init__(self, found: Found) -> None:
        self._found = found

    async def lexical(self, tenant: str, words: str, limit: int) -> Sequence[Hit]:
        """As before."""
        del tenant, words
        return self._found.lexical[:limit]

    async def nearest(self, tenant: str, vector: Sequence[float], limit: int) -> Sequence[Hit]:
        """As before."""
        del tenant, vector
        return self._found.dense[:limit]


async def run(*, full: bool) -> dict[str, Any]:
    """Index the sets, ask every question, and score."""
    sets = [judged.load(name) for name in judged.SETS]
    async with judged.shelf(shipped=not full) as shared:
        shelves = {one.name: await shared.beside(one.name) for one in sets}
        passages = {one.name: await judged.put(shelves[one.name], one.name, one.articles) for one in sets}
        embedded = shared.embedder.embedded
        for one in sets:
            await judged.put(shared, one.name, one.articles)
        found = {one.name: [await _ranked(shelves[one.name], shared, one, each) for each in one.questions] for one in sets}
        strangers = [await _ask(shelves[at.name], at.name, question) for at, question in _strangers(sets)]
    figures: dict[str, Any] = {"passages": sum(passages.values()), "passages_embedded": embedded}
    shipped: list[Score] = []
    above: Counter[str] = Counter()
    near = True
    for chosen in sets:
        measured = [one for one in found[chosen.name] if not one.question.tunes and one.question.relevant]
        scores = _scores(measured)
        _print(chosen, passages[chosen.name], len(measured), scores)
        single, hybrid = _best_single(scores), scores["hybrid, as shipped"]
        above.update(what for what, ours, best in zip(MEASURES, hybrid, single, strict=True) if ours > best)
        near = near and all(ours >= best - BELOW_BEST for ours, best in zip(hybrid, single, strict=True))
        shipped.append(hybrid)
        figures |= _named(chosen.name, scores)
    figures |= _mean(shipped) | {"retrieval_weight": SHIPPED.lexical_weight}
    figures["retrieval_weight_best_on_tuning_half"] = _choose(
        [[one for one in ranked if one.question.tunes and one.question.relevant] for ranked in found.values()]
    )
    figures |= refusals.account(Asked(found, strangers), SHIPPED)
    figures |= {f"{what}_sets_above_best_single": above[what] for what in MEASURES}
    return hold(
        figures,
        hybrid_is_at_most_0_02_below_the_best_branch=near,
        hybrid_is_above_the_best_branch_on_two_sets=min(above[what] for what in MEASURES) >= 2,
        something_is_found=figures["recall_at_10"] > 0.5,
    )


async def _ask(shelf: Shelf, tenant: str, question: Question) -> Found:
    vector = mean_direction(await shelf.embedder.embed(windows(question.text, most=QUERY_WINDOWS), tenant=tenant))
    return Found(
        question,
        await shelf.index.lexical(tenant, question.text, BRANCH_LIMIT),
        await shelf.index.nearest(tenant, vector, BRANCH_LIMIT),
    )


async def _ranked(own: Shelf, shared: Shelf, chosen: Judged, question: Question) -> Ranked:
    found = await _ask(own, chosen.name, question)
    crowded = replace(found, lexical=await shared.index.lexical(chosen.name, question.text, BRANCH_LIMIT))
    shipped, crowded_shipped = [await _shipped(own, chosen.name, one) for one in (found, crowded)]
    return Ranked(found.question, found.lexical, found.dense, shipped, crowded, crowded_shipped)


async def _shipped(shelf: Shelf, tenant: str, found: Found) -> Sequence[str]:
    retriever = HybridRetriever(branches=Replayed(found), embedder=shelf.embedder, policy=SHIPPED)
    return [one.article_id for one in await retriever.search(tenant=tenant, query=found.question.text, limit=PASSAGES)]


def _strangers(sets: Sequence[Judged]) -> Iterator[tuple[Judged, Question]]:
    """Some questions of each set, to ask of each other one."""
    for at, of in permutations(sets, 2):
        yield from ((at, question) for question in of.questions[: refusals.STRANGERS])


def _scores(found: Sequence[Ranked]) -> dict[str, Score]:
    return {
        "full text": _score(found, lambda one: [hit.article_id for hit in one.lexical]),
        "vectors": _score(found, lambda one: [hit.article_id for hit in one.dense]),
        "hybrid, equal weights": _score(found, lambda one: _fused(one, 1.0)),
        "hybrid, nothing refused": _score(found, lambda one: _fused(one, SHIPPED.lexical_weight)),
        "hybrid, as shipped": _score(found, lambda one: one.shipped),
        "full text, index shared": _score(found, lambda one: [hit.article_id for hit in one.crowded.lexical]),
        "hybrid, index shared": _score(found, lambda one: one.crowded_shipped),
    }


def _score(found: Sequence[Ranked], ranked: Any) -> Score:
    return judged.score([(list(dict.fromkeys(ranked(one))), one.question.relevant) for one in found])


def _fused(one: Found, weight: float) -> list[str]:
    policy = replace(SHIPPED, lexical_weight=weight)
    return [hit.article_id for hit, _ in fuse({"lexical": one.lexical, "dense": one.dense}, policy)]


def _best_single(scores: dict[str, Score]) -> Score:
    """The best that one branch alone reaches, of each measure."""
    return Score(*(max(pair) for pair in zip(scores["full text"], scores["vectors"], strict=True)))


def _choose(tuned: Sequence[Sequence[Ranked]]) -> float:
    """The weight with the best mean of the three measures over the sets, alone and in a shared index, on the half for tuning."""
    table = {weight: [*_by_weight(tuned, weight), *_by_weight(tuned, weight, crowded=True)] for weight in WEIGHTS}
    means = {weight: sum(value for one in scores for value in one) / (3 * len(scores)) for weight, scores in table.items()}
    columns = ["weight", *(f"{name} {what}" for name in judged.SETS for what in ("R@5", "R@10", "MRR")), "mean, with shared"]
    cells = {weight: [*(value for one in scores[: len(tuned)] for value in one), means[weight]] for weight, scores in table.items()}
    rows = [[str(weight), *(f"{value:.3f}" for value in row)] for weight, row in cells.items()]
    print_table("Lexical weight, on the half for tuning", columns, rows)
    return max(means, key=lambda weight: means[weight])


def _by_weight(tuned: Sequence[Sequence[Ranked]], weight: float, *, crowded: bool = False) -> list[Score]:
    return [_score(found, lambda one: _fused(one.crowded if crowded else one, weight)) for found in tuned]


def _named(name: str, scores: dict[str, Score]) -> dict[str, Any]:
    short = {"full text": "lexical", "vectors": "vector", "hybrid, as shipped": "hybrid", "hybrid, index shared": "shared_index"}
    return {
        f"{name}_{short[way]}_{what}": round(getattr(one, what), 3)
        for way, one in scores.items()
        if way in short
        for what in MEASURES
    }


def _mean(scores: Sequence[Score]) -> dict[str, Any]:
    sums = [sum(values) / len(scores) for values in zip(*scores, strict=True)]
    return dict(zip(MEASURES, (round(value, 3) for value in sums), strict=True))


def _print(chosen: Judged, passages: int, measured: int, scores: dict[str, Score]) -> None:
    rows = [[way, *(f"{value:.3f}" for value in one)] for way, one in scores.items()]
    rows += [[f"earlier baseline: {way}", *(f"{value:.3f}" for value in known)] for way, known in BASELINES[chosen.name].items()]
    title = f"{chosen.name}: {len(chosen.articles)} articles in {passages} passages, {measured} questions"
    print_table(title, ["", "recall@5", "recall@10", "MRR@10"], rows)
