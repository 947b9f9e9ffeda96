"""Tenants whose articles are nearly the same, and the mark by which every passage tells whose it is. Pure."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from infra.redis.vectors import tenant_tag
from topics.events import ArticlePublished

PUBLISHING: Final = ("acme", "ACME", "globex")  # names that events may have
TENANTS: Final = (*PUBLISHING, "acme,globex")  # and one that an index must keep apart all the same
MARK_WORD: Final = "edition"


def mark_of(tenant: str) -> str:
    """Two words that stand in this tenant's articles alone."""
    return f"{MARK_WORD} {tenant_tag(tenant)[:12]}"


def edition(article: ArticlePublished, tenant: str) -> ArticlePublished:
    """The article, under its own id, with the tenant's mark in every sentence: whatever is taken from it tells whose it is."""
    mark = mark_of(tenant)
    sentences = article.body.replace(". ", f" ({mark}). ")
    return article.model_copy(update={"body": f"{mark}. {sentences}"})


def is_foreign(tenant: str | None, text: str) -> bool:
    """Whether a text holds words of a tenant other than this one; None owns nothing."""
    return any(mark_of(other) in text for other in TENANTS if other != tenant)


@dataclass(slots=True)
class Tally:
    """Texts that hold a mark, by where they were found. The owner's own show that the place was really looked at."""

    own: Counter[str] = field(default_factory=Counter[str])
    foreign: Counter[str] = field(default_factory=Counter[str])

    def look(self, where: str, tenant: str | None, text: str) -> None:
        """Count one text that `tenant` may see, or that is nobody's."""
        self.own[where] += tenant is not None and mark_of(tenant) in text
        self.foreign[where] += is_foreign(tenant, text)
