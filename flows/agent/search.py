"""The tool that every tenant has: search in its help articles, with numbered passages."""

import re
from collections.abc import Sequence
from typing import Final

from flows.agent.state import Source
from flows.agent.tools import ToolContext, tool
from flows.ports import Passage
from topics.events import Citation

NO_PASSAGES: Final = "No passages found."
OVER_BUDGET: Final = "Not searched: the budget is used up."
DEFAULT_LIMIT: Final = 5
_MARKER: Final = re.compile(r"\[(\d{1,6})\]")


@tool(effect="READ")
async def search_articles(context: ToolContext, *, query: str) -> str:
    """Search the help articles. Returns numbered passages; cite those you use by their number, like [1]."""
    passages = await context.retriever.search(tenant=context.tenant, query=query, limit=DEFAULT_LIMIT)
    return render(passages, first_marker=1)


TOOL: Final = search_articles


def render(passages: Sequence[Passage], *, first_marker: int) -> str:
    """Passages as the model reads them, numbered from `first_marker`."""
    if not passages:
        return NO_PASSAGES
    return "\n\n".join(f"[{marker}] {_heading(passage)}\n{passage.text}" for marker, passage in enumerate(passages, first_marker))


def _heading(passage: Passage) -> str:
    return f"{passage.title} > {passage.title_path}" if passage.title_path else passage.title


def sources_of(passages: Sequence[Passage], *, first_marker: int) -> list[Source]:
    """Passages as the state keeps them, under the same numbers."""
    return [
        Source(
            marker=marker,
            article_id=passage.article_id,
            title=passage.title,
            url=passage.url,
            revision=passage.revision,
            passage=passage.text,
        )
        for marker, passage in enumerate(passages, first_marker)
    ]


def citations_in(text: str, sources: Sequence[Source]) -> tuple[Citation, ...]:
    """The passages whose markers stand in a text, in the order of their first use. Unknown markers cite nothing."""
    by_marker = {source["marker"]: source for source in sources}
    used = dict.fromkeys(int(marker) for marker in _MARKER.findall(text))
    return tuple(Citation.model_validate(by_marker[marker]) for marker in used if marker in by_marker)
