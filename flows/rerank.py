"""Order passages anew after the search: `flows/ports.Reranker`.

Source: Carbonell and Goldstein, "The use of MMR, diversity-based reranking", SIGIR 1998.
"""

from collections.abc import Sequence

from flows.duplicates import likeness, wording
from flows.ports import Passage


class MarginalRelevance:
    """Prefer a passage that says something which the ones before it do not.

    Args:
        relevance: 1 keeps the order of the search; 0 looks at nothing but difference after the first.
    """

    def __init__(self, *, relevance: float = 0.7) -> None:
        self._relevance = relevance

    async def rerank(self, query: str, passages: Sequence[Passage], *, limit: int) -> Sequence[Passage]:
        """At most `limit` of the passages, each once; the first stays the first."""
        del query
        rest = list(enumerate(passages))
        best = max((passage.score for passage in passages), default=0.0) or 1.0
        words = [wording(passage.text) for passage in passages]
        nearest = [0.0] * len(rest)
        chosen: list[Passage] = []
        while rest and len(chosen) < limit:
            at, passage = max(rest, key=lambda item: (self._worth(item[1].score / best, nearest[item[0]]), -item[0]))
            rest.remove((at, passage))
            chosen.append(passage)
            nearest = [max(known, likeness(words[at], other)) for known, other in zip(nearest, words, strict=True)]
        return chosen

    def _worth(self, score: float, nearest: float) -> float:
        return self._relevance * score - (1.0 - self._relevance) * nearest
