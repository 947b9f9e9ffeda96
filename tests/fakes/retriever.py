"""A retriever over a list of passages."""

from collections.abc import Sequence

from flows.ports import Passage


def passage(text: str, *, tenant: str = "acme", article_id: str = "a-1", title: str = "Returns", ordinal: int = 0) -> Passage:
    return Passage(
        tenant=tenant,
        article_id=article_id,
        title=title,
        title_path="Policy",
        text=text,
        revision=3,
        ordinal=ordinal,
        url="https://h/a-1",
    )


class FakeRetriever:
    """Finds the passages filed under exactly the query, whatever the tenant when it `leaks`."""

    def __init__(self, found: dict[str, list[Passage]] | None = None, *, leaks: bool = False) -> None:
        self.found = found or {}
        self.leaks = leaks
        self.searches: list[tuple[str, str]] = []

    async def search(self, *, tenant: str, query: str, limit: int) -> Sequence[Passage]:
        self.searches.append((tenant, query))
        hits = self.found.get(query, [])
        return [hit for hit in hits if self.leaks or hit.tenant == tenant][:limit]
