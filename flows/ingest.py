"""Put articles into the index, and take them out."""

from anyio import to_thread

from flows.chunking import Piece, chunk, embedding_text
from flows.ports import ArticleIndex, Embedder, Passage
from topics.events import ArticlePublished, ArticleRetired


async def index_article(article: ArticlePublished, *, tenant: str, embedder: Embedder, index: ArticleIndex) -> int:
    """Cut an article, embed its passages and swap them in at once. Running it again changes nothing.

    Returns:
        How many passages the article has now. One without any text is taken out: 0.

    Raises:
        UnavailableError, OutageError and the embedder's errors: the index holds the article as it was before.
    """
    # A long article takes a second to cut, and the loop has other records to serve.
    pieces = await to_thread.run_sync(chunk, article.title, article.body)
    if not pieces:
        await index.remove(tenant=tenant, article_id=article.article_id)
        return 0
    vectors = await embedder.embed([embedding_text(piece) for piece in pieces])
    passages = [_passage(article, piece, tenant=tenant) for piece in pieces]
    await index.replace(tenant=tenant, article_id=article.article_id, passages=passages, vectors=vectors)
    return len(passages)


async def retire_article(article: ArticleRetired, *, tenant: str, index: ArticleIndex) -> int:
    """Take an article out of the index. Returns how many passages it had."""
    return await index.remove(tenant=tenant, article_id=article.article_id)


def _passage(article: ArticlePublished, piece: Piece, *, tenant: str) -> Passage:
    return Passage(
        tenant=tenant,
        article_id=article.article_id,
        title=article.title,
        title_path=piece.title_path,
        text=piece.text,
        revision=article.revision,
        ordinal=piece.ordinal,
        url=article.url,
    )
