"""Which worker reads which input: the left half of `topology()`, for those who need no handlers."""

from typing import Final

from topics.catalogue import ARTICLES, DECISIONS, FEEDBACK, QUERIES, TICKETS, TIMERS, TopicSpec

READERS: Final[dict[str, tuple[TopicSpec, ...]]] = {
    "ingestion": (TICKETS, ARTICLES),
    "query": (QUERIES,),
    "approvals": (DECISIONS, TIMERS),
    "feedback": (FEEDBACK,),
}
