"""Marginal relevance: different things first, nothing added, nothing lost."""

from hypothesis import given
from hypothesis import strategies as st

from flows.ports import Passage, Reranker
from flows.rerank import MarginalRelevance

SCORED = st.lists(st.tuples(st.sampled_from(["a b c", "a b d", "x y z", "q"]), st.floats(0.001, 1.0)), max_size=10)


def passages(*scored: tuple[str, float]) -> list[Passage]:
    return [
        Passage(tenant="acme", article_id=f"a{at}", title="T", title_path="T", text=text, revision=1, ordinal=0, score=score)
        for at, (text, score) in enumerate(scored)
    ]


async def test_a_passage_that_repeats_the_first_comes_after_one_that_does_not() -> None:
    found = passages(("a b c d", 1.0), ("a b c d", 0.95), ("x y z", 0.7))
    port: Reranker = MarginalRelevance()
    assert [one.article_id for one in await port.rerank("q", found, limit=3)] == ["a0", "a2", "a1"]
    assert [one.article_id for one in await MarginalRelevance(relevance=1.0).rerank("q", found, limit=3)] == ["a0", "a1", "a2"]


@given(SCORED, st.integers(0, 12), st.floats(0.0, 1.0))
async def test_each_passage_comes_once_and_the_best_first(scored: list[tuple[str, float]], limit: int, relevance: float) -> None:
    found = sorted(passages(*scored), key=lambda one: -one.score)
    chosen = await MarginalRelevance(relevance=relevance).rerank("q", found, limit=limit)
    assert len(chosen) == min(limit, len(found)) == len({one.article_id for one in chosen})
    assert all(one in found for one in chosen)
    if relevance == 1.0:
        assert chosen == found[:limit]
