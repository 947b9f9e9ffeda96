"""Help articles."""

from pydantic import Field

from topics.events.payload import Payload


class ArticlePublished(Payload):
    """A help article, whole; a later one with the same id replaces it."""

    TYPE = "article.published"

    article_id: str = Field(min_length=1, max_length=200)
    title: str
    body: str
    url: str | None = None
    revision: int = Field(default=1, ge=0)


class ArticleRetired(Payload):
    """What a tombstone on `articles` means: remove it from the index."""

    TYPE = "article.retired"

    article_id: str = Field(min_length=1, max_length=200)
