"""Retrieval on three judged sets: full text, vectors and both fused, as `sluice` ships them.

Weights are chosen on one half of the questions, which a hash of their ids draws, and the figures are of the other half. All sets
lie in one index, a tenant each. A question that is refused, because nothing is near enough, counts as nothing found.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from bench.figures import judged
from bench.figures.bounds import hold
from bench.figures.judged import Judged, Question, Score, Shelf
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
class Found:
    """What both branches gave for a question, and what the retriever made of it."""

    question: Question
    lexical: Sequence[Hit]
    dense: Sequence[Hit]
    shipped: Sequence[str]


async def run(*, full: bool) -> dict[str, Any]:
    """Index the sets, ask every question, and score."""
    figures: dict[str, Any] = {}
    shipped: list[Score] = []
    tuned: list[list[Found]] = []
    above: Counter[str] = Counter()
    near = True
    async with judged.shelf() as shelf:
        for name in judged.SETS:
            chosen = judged.load(name, full=full)
            passages = await judged.put(shelf, name, chosen.articles)
            found = [await _ask(shelf, chosen, question) for question in chosen.questions]
            tuned.append([one for one in found if one.question.tunes and one.question.relevant])
            measured = [one for one in found if not one.question.tunes and one.question.relevant]
            scores = _scores(measured)
            _print(chosen, passages, len(measured), scores)
            single, hybrid = _best_single(scores), scores["hybrid, as shipped"]
            above.update(what for what, ours, best in zip(MEASURES, hybrid, single, strict=True) if ours > best)
            near = near and all(ours >= best - BELOW_BEST for ours, best in zip(hybrid, single, strict=True))
            shipped.append(hybrid)
            figures |= _named(name, scores) | _refusals(name, found)
    figures |= _mean(shipped) | {"retrieval_weight": SHIPPED.lexical_weight}
    figures["retrieval_weight_best_on_tuning_half"] = _choose(tuned)
    figures |= {f"{what}_sets_above_best_single": above[what] for what in MEASURES}
    return hold(
        figures,
        hybrid_is_at_most_0_02_below_the_best_branch=near or not full,
        hybrid_is_above_the_best_branch_on_two_sets=min(above[what] for what in MEASURES) >= 2 or not full,
        something_is_found=figures["recall_at_10"] > 0.5,
    )


async def _ask(shelf: Shelf, chosen: Judged, question: Question) -> Found:
    vector = mean_direction(await shelf.embedder.embed(windows(question.text, most=QUERY_WINDOWS), tenant=chosen.name))
    retriever = HybridRetriever(branches=shelf.index, embedder=shelf.embedder, policy=SHIPPED)
    return Found(
        question,
        await shelf.index.lexical(chosen.name, question.text, BRANCH_LIMIT),
        await shelf.index.nearest(chosen.name, vector, BRANCH_LIMIT),
        [one.article_id for one in await retriever.search(tenant=chosen.name, query=question.text, limit=PASSAGES)],
    )


def _scores(found: Sequence[Found]) -> dict[str, Score]:
    return {
        "full text": _score(found, lambda one: [hit.article_id for hit in one.lexical]),
        "vectors": _score(found, lambda one: [hit.article_id for hit in one.dense]),
        "hybrid, equal weights": _score(found, lambda one: _fused(one, 1.0)),
        "hybrid, nothing refused": _score(found, lambda one: _fused(one, SHIPPED.lexical_weight)),
        "hybrid, as shipped": _score(found, lambda one: one.shipped),
    }


def _score(found: Sequence[Found], ranked: Any) -> Score:
    return judged.score([(list(dict.fromkeys(ranked(one))), one.question.relevant) for one in found])


def _fused(one: Found, weight: float) -> list[str]:
    policy = replace(SHIPPED, lexical_weight=weight)
    return [hit.article_id for hit, _ in fuse({"lexical": one.lexical, "dense": one.dense}, policy)]


def _best_single(scores: dict[str, Score]) -> Score:
    """The best that one branch alone reaches, of each measure."""
    return Score(*(max(pair) for pair in zip(scores["full text"], scores["vectors"], strict=True)))


def _choose(tuned: Sequence[Sequence[Found]]) -> float:
    """The weight with the best mean of the three measures over the sets, on the half for tuning."""
    table = {weight: [_score(found, lambda one, w=weight: _fused(one, w)) for found in tuned] for weight in WEIGHTS}
    rows = [[weight, *(round(value, 3) for one in scores for value in one)] for weight, scores in table.items()]
    columns = ["weight", *(f"{name} {what}" for name in judged.SETS for what in ("R@5", "R@10", "MRR"))]
    print_table(
        "Lexical weight, on the half for tuning", columns, [[str(row[0]), *(f"{cell:.3f}" for cell in row[1:])] for row in rows]
    )
    return max(table, key=lambda weight: sum(value for one in table[weight] for value in one))


def _refusals(name: str, found: Sequence[Found]) -> dict[str, Any]:
    answered = [bool(one.shipped) for one in found if one.question.relevant]
    impossible = [not one.shipped for one in found if not one.question.relevant]
    figures = {f"{name}_answered_share": round(sum(answered) / len(answered), 3)}
    if impossible:
        figures |= {f"{name}_impossible": len(impossible), f"{name}_impossible_refused": sum(impossible)}
    print(
        f"  answered: {sum(answered)} of {len(answered)}"
        + (f"; impossible ones refused: {sum(impossible)} of {len(impossible)}" if impossible else "")
    )
    return figures


def _named(name: str, scores: dict[str, Score]) -> dict[str, Any]:
    short = {"full text": "lexical", "vectors": "vector", "hybrid, as shipped": "hybrid"}
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
