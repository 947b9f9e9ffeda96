"""Vectors that are kept: what a figure is measured with is what the model said of just these texts."""

from pathlib import Path

import pytest

from bench.figures import judged
from bench.figures.vectors import SHIPPED, KeptVectors
from flows.ingest import index_article
from tests.fakes.article_index import MemoryIndex, WordEmbedder


def kept(embedder: WordEmbedder, tmp_path: Path, shipped: Path | None = None) -> KeptVectors:
    return KeptVectors(embedder, shipped=shipped, cache=tmp_path / "deep" / "vectors.f16")


async def test_a_text_is_embedded_once_and_its_vector_is_the_same_ever_after(tmp_path: Path) -> None:
    words = WordEmbedder(dimensions=384)
    first = kept(words, tmp_path)
    found = await first.embed(["refund a card", "log in", "refund a card"], tenant="acme")
    first.save()
    again = kept(words, tmp_path)
    assert await again.embed(["log in", "refund a card"], tenant="acme") == [found[1], found[0]]
    assert (words.texts, first.embedded, again.embedded) == (["refund a card", "log in"], 2, 0)
    assert found[0] == pytest.approx(words._vector("refund a card"), abs=1e-3)


async def test_what_was_asked_for_can_be_shipped_and_nothing_else(tmp_path: Path) -> None:
    words = WordEmbedder(dimensions=384)
    first = kept(words, tmp_path)
    await first.embed(["old"], tenant="acme")
    first.save()
    second = kept(words, tmp_path)
    found = await second.embed(["new", "newer"], tenant="acme")
    second.ship(tmp_path / "shipped.f16")
    third = kept(words, tmp_path / "elsewhere", tmp_path / "shipped.f16")
    assert await third.embed(["newer", "new"], tenant="acme") == found[::-1]
    assert third.embedded == 0
    await third.embed(["old"], tenant="acme")
    assert third.embedded == 1


@pytest.mark.parametrize("name", judged.SETS)
async def test_the_shipped_vectors_are_those_of_today_s_passages(name: str, tmp_path: Path) -> None:
    """Else `make figures` waits for the model: `python -m bench.figures.ship_vectors` makes them anew."""
    shipped = kept(WordEmbedder(dimensions=384), tmp_path, SHIPPED)
    passages = 0
    for article in judged.load(name).articles:
        passages += await index_article(article, tenant=name, embedder=shipped, index=MemoryIndex())
    assert shipped.embedded <= passages / 10
