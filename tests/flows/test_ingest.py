"""Articles on their way into the index and out of it."""

import pytest

from flows.ingest import index_article, retire_article
from tests.fakes.article_index import MemoryIndex, WordEmbedder
from topics.errors import UnavailableError
from topics.events import ArticlePublished, ArticleRetired

LONG = " ".join(f"step{number}" for number in range(60))
BODY = f"Refunds take five days. {LONG}\n\n# Cards\nCards are refunded at once. {LONG}."


def article(body: str = BODY, *, revision: int = 1, title: str = "Refunds") -> ArticlePublished:
    return ArticlePublished(article_id="a1", title=title, body=body, url="https://x.example/a1", revision=revision)


async def test_an_article_is_kept_in_passages_with_its_source() -> None:
    index, embedder = MemoryIndex(), WordEmbedder()
    assert await index_article(article(revision=3), tenant="acme", embedder=embedder, index=index) == 2
    passages = [passage for passage, _ in index.articles["acme", "a1"]]
    assert [(passage.ordinal, passage.title_path) for passage in passages] == [(0, "Refunds"), (1, "Refunds > Cards")]
    assert {(passage.tenant, passage.title, passage.url, passage.revision) for passage in passages} == {
        ("acme", "Refunds", "https://x.example/a1", 3)
    }


async def test_a_key_in_a_title_is_kept_nowhere() -> None:
    index, embedder = MemoryIndex(), WordEmbedder()
    key = f"ghp_{'x1Y2' * 9}"
    await index_article(article(title=f"Refunds\nwith {key}"), tenant="acme", embedder=embedder, index=index)
    assert {passage.title for passage, _ in index.articles["acme", "a1"]} == {"Refunds with ⟨secret removed⟩"}
    assert key not in repr([index.articles, embedder.texts])


async def test_a_vector_knows_where_its_passage_stands() -> None:
    embedder = WordEmbedder()
    await index_article(article(), tenant="acme", embedder=embedder, index=MemoryIndex())
    assert embedder.texts[1].startswith("Refunds > Cards\nCards are refunded at once.")
    assert embedder.tenants == ["acme"], "counted to its tenant"


async def test_running_again_changes_nothing() -> None:
    index, embedder = MemoryIndex(), WordEmbedder()
    await index_article(article(), tenant="acme", embedder=embedder, index=index)
    before = dict(index.articles)
    await index_article(article(), tenant="acme", embedder=embedder, index=index)
    assert index.articles == before


async def test_an_embedder_that_fails_leaves_the_article_as_it_was() -> None:
    index, embedder = MemoryIndex(), WordEmbedder()
    await index_article(article(), tenant="acme", embedder=embedder, index=index)
    before = dict(index.articles)
    embedder.error = UnavailableError("down")
    with pytest.raises(UnavailableError):
        await index_article(article("new", revision=2), tenant="acme", embedder=embedder, index=index)
    assert index.articles == before


async def test_an_article_without_any_text_is_taken_out() -> None:
    index, embedder = MemoryIndex(), WordEmbedder()
    await index_article(article(), tenant="acme", embedder=embedder, index=index)
    assert await index_article(article(" ", title="", revision=2), tenant="acme", embedder=embedder, index=index) == 0
    assert index.articles == {}


async def test_a_retired_article_is_gone_for_its_tenant_only() -> None:
    index, embedder = MemoryIndex(), WordEmbedder()
    for tenant in ("acme", "other"):
        await index_article(article(), tenant=tenant, embedder=embedder, index=index)
    assert await retire_article(ArticleRetired(article_id="a1"), tenant="acme", index=index) == 2
    assert await retire_article(ArticleRetired(article_id="a1"), tenant="acme", index=index) == 0
    assert list(index.articles) == [("other", "a1")]


async def test_a_new_revision_of_the_same_content_is_not_embedded_again() -> None:
    index, embedder = MemoryIndex(), WordEmbedder()
    await index_article(article(), tenant="acme", embedder=embedder, index=index)
    embedded = list(embedder.texts)
    assert await index_article(article(revision=2), tenant="acme", embedder=embedder, index=index) == 2
    assert embedder.texts == embedded
    assert {passage.revision for passage, _ in index.articles["acme", "a1"]} == {2}
    await index_article(article(title="Returns", revision=3), tenant="acme", embedder=embedder, index=index)
    assert len(embedder.texts) == 2 * len(embedded)
    assert {passage.title for passage, _ in index.articles["acme", "a1"]} == {"Returns"}


async def test_of_a_changed_article_only_what_is_new_is_embedded_and_every_passage_has_its_own_vector() -> None:
    index, embedder = MemoryIndex(), WordEmbedder()
    await index_article(article(), tenant="acme", embedder=embedder, index=index)
    changed = f"Refunds take six days. {LONG}\n\n# Cards\nCards are refunded at once. {LONG}.\n# Cash\n{LONG} in cash"
    await index_article(article(changed, revision=2), tenant="acme", embedder=embedder, index=index)
    assert [text.split()[:4] for text in embedder.texts[2:]] == [
        ["Refunds", "Refunds", "take", "six"],
        ["Refunds", ">", "Cash", "step0"],
    ]
    for passage, vector in index.articles["acme", "a1"]:
        assert vector == (await WordEmbedder().embed([f"{passage.title_path}\n{passage.text}"], tenant="acme"))[0]


async def test_the_same_content_for_another_model_is_embedded_again() -> None:
    index, embedder = MemoryIndex(), WordEmbedder()
    await index_article(article(), tenant="acme", embedder=embedder, index=index)
    embedder.space = "other/64"
    await index_article(article(), tenant="acme", embedder=embedder, index=index)
    assert len(embedder.texts) == 4


async def test_another_tenant_s_same_article_is_its_own() -> None:
    index, embedder = MemoryIndex(), WordEmbedder()
    for tenant in ("acme", "other"):
        await index_article(article(), tenant=tenant, embedder=embedder, index=index)
    assert {tenant for tenant, _ in index.articles} == {"acme", "other"}


async def test_a_passage_that_repeats_another_of_its_article_is_dropped() -> None:
    index, embedder = MemoryIndex(), WordEmbedder()
    section = " ".join(
        f"{verb} the {noun}" for verb in ("fill", "sign", "send") for noun in ["form", "letter", "card", "note", "slip", "page"]
    )
    parts = {"Cards": section, "Cash": section, "Cheques": section.replace("slip", "sheet", 1), "Coins": f"{section} 7"}
    body = "\n".join(f"# {name}\n{text} {text.upper().lower()}" for name, text in parts.items())
    assert await index_article(article(body), tenant="acme", embedder=embedder, index=index) == 2
    passages = [passage for passage, _ in index.articles["acme", "a1"]]
    assert [(passage.ordinal, passage.title_path) for passage in passages] == [(0, "Refunds > Cards"), (1, "Refunds > Coins")]
