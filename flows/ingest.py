"""Put articles into the index, and take them out."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from anyio import to_thread

from flows.chunking import Piece, chunk, embedding_text, named
from flows.duplicates import distinct
from flows.ports import ArticleIndex, Embedder, Passage
from topics.events import ArticlePublished, ArticleRetired
from topics.origin import UNKNOWN_ORIGIN, Origin


async def index_article(
    article: ArticlePublished, *, tenant: str, embedder: Embedder, index: ArticleIndex, origin: Origin = UNKNOWN_ORIGIN
) -> int:
    """Cut an article, embed its passages and swap them in at once. Running it again changes nothing.

    Only passages are embedded that the article did not have before, by the same model and under the same headings.

    Returns:
        How many passages the article has now. One without any text is taken out: 0.

    Raises:
        SupersededError: What the index holds is newer, and stays.
        UnavailableError, OutageError and the embedder's errors: the index holds the article as it was before.
    """
    # A long article takes a second to cut, and the loop has other records to serve.
    pieces = await to_thread.run_sync(_pieces, article.title, article.body)
    if not pieces:
        await index.remove(tenant=tenant, article_id=article.article_id, origin=origin, revision=article.revision)
        return 0
    texts = [embedding_text(piece) for piece in pieces]
    passages = [_passage(article, piece, tenant=tenant) for piece in pieces]
    content = _digest([embedder.space, article.title, *texts])
    if await index.keep(tenant=tenant, article_id=article.article_id, passages=passages, content=content, origin=origin):
        return len(passages)
    vectors = await _vectors(article.article_id, pieces, tenant=tenant, embedder=embedder, index=index)
    await index.replace(
        tenant=tenant,
        article_id=article.article_id,
        passages=passages,
        vectors=vectors,
        content=content,
        space=embedder.space,
        origin=origin,
    )
    return len(passages)


def _pieces(title: str, body: str) -> list[Piece]:
    """The passages of an article, without those that repeat one before them."""
    kept = distinct(chunk(title, body), text=lambda piece: piece.text)
    return [replace(piece, ordinal=ordinal) for ordinal, piece in enumerate(kept)]


async def _vectors(
    article_id: str, pieces: Sequence[Piece], *, tenant: str, embedder: Embedder, index: ArticleIndex
) -> Sequence[Sequence[float]]:
    """One vector a piece: the one that the index holds, where it has it."""
    known = await index.embedded(tenant=tenant, article_id=article_id, space=embedder.space)
    missing = [piece for piece in pieces if (piece.title_path, piece.text) not in known]
    made = iter(await embedder.embed([embedding_text(piece) for piece in missing], tenant=tenant) if missing else ())
    return [known[place] if (place := (piece.title_path, piece.text)) in known else next(made) for piece in pieces]


def _digest(texts: Sequence[str]) -> str:
    """One hash for a list of texts; where one ends and the next begins is part of it."""
    whole = hashlib.sha256()
    for text in texts:
        whole.update(hashlib.sha256(text.encode()).digest())
    return whole.hexdigest()


async def retire_article(article: ArticleRetired, *, tenant: str, index: ArticleIndex, origin: Origin = UNKNOWN_ORIGIN) -> int:
    """Take an article out of the index. Returns how many passages it had.

    Raises:
        SupersededError: What the index holds is newer, and stays.
    """
    return await index.remove(tenant=tenant, article_id=article.article_id, origin=origin)


def _passage(article: ArticlePublished, piece: Piece, *, tenant: str) -> Passage:
    return Passage(
        tenant=tenant,
        article_id=article.article_id,
        title=named(article.title),
        title_path=piece.title_path,
        text=piece.text,
        revision=article.revision,
        ordinal=piece.ordinal,
        url=article.url,
    )
