"""How a thread stands, from what is saved of it: for operators, without a model and without a broker."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from langchain_core.messages import AnyMessage

from flows import history
from flows.agent.state import PastQuery, ThreadRef, past_query
from infra.redis.approvals import RedisApprovalRegistry
from infra.redis.checkpointer import HardenedRedisSaver
from infra.redis.client import connect
from infra.redis.feedback import RedisFeedback
from infra.redis.held import RedisHeldQueries
from infra.redis.keys import Keys
from infra.settings import Settings
from topics.approval_state import ApprovalQuery, ApprovalState
from topics.feedback import Feedback

Standing = Literal["unknown", "waits for people", "at work", "finished"]
PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class QueryView:
    """One question of a thread. `outcome` is None while it has not ended; `calls` counts calls by what became of them."""

    query_id: str
    outcome: str | None
    text: str
    calls: Mapping[str, int]
    feedback: tuple[Feedback, ...]
    traceparent: str | None


@dataclass(frozen=True, slots=True)
class ThreadView:
    """A thread. `earlier` counts questions of which only their ids are kept; `loose` is feedback that names none of `queries`."""

    tenant: str
    thread_id: str
    standing: Standing
    graph_version: str | None
    exchanges: int
    earlier: int
    queries: tuple[QueryView, ...]
    pending: tuple[ApprovalState, ...]
    held: tuple[str, ...]
    loose: tuple[Feedback, ...]


async def look(settings: Settings, *, tenant: str, thread_id: str) -> ThreadView:
    """Read a thread. One that is at work meanwhile may have moved on between two of the readings.

    Raises:
        OutageError: Redis does not answer.
    """
    thread = ThreadRef(tenant, thread_id)
    async with _redis(settings) as redis:
        keys = Keys(settings.redis_prefix)
        state = await _state(HardenedRedisSaver(redis, keys=keys), thread)
        book = RedisFeedback(redis, keys=keys)
        pending = await _pending(RedisApprovalRegistry(redis, keys=keys), thread)
        said = await book.of(thread.checkpoint_id)
        queries = [
            _query(one, said, traceparent=await book.trace_of(thread.checkpoint_id, one["query_id"])) for one in _queries(state)
        ]
        held = await RedisHeldQueries(redis, keys=keys).all(thread.checkpoint_id)
    shown = {one.query_id for one in queries}
    messages = cast("Sequence[AnyMessage]", state.get("messages", ()))
    return ThreadView(
        tenant=tenant,
        thread_id=thread_id,
        standing=_standing(state, pending),
        graph_version=state.get("graph_version"),
        exchanges=len(history.exchanges(messages)) if messages else 0,
        earlier=len(set(state.get("past_query_ids", ())) - shown),
        queries=tuple(queries),
        pending=pending,
        held=tuple(one.query_id for one in held),
        loose=tuple(one for one in said if one.query_id not in shown),
    )


async def _state(saver: HardenedRedisSaver, thread: ThreadRef) -> dict[str, Any]:
    saved = await saver.aget_tuple({"configurable": {"thread_id": thread.checkpoint_id, "checkpoint_ns": ""}})
    return {} if saved is None else saved.checkpoint["channel_values"]


async def _pending(registry: RedisApprovalRegistry, thread: ThreadRef) -> tuple[ApprovalState, ...]:
    """What waits of this thread, among all that waits of its tenant."""
    found: list[ApprovalState] = []
    cursor: str | None = None
    while True:
        page = await registry.search(ApprovalQuery(thread.tenant, limit=PAGE, cursor=cursor))
        found += [one for one in page.approvals if one.request.thread_id == thread.thread_id]
        cursor = page.cursor
        if cursor is None:
            return tuple(found)


def _queries(state: Mapping[str, Any]) -> list[PastQuery]:
    """The questions of which more than the id is kept, oldest first."""
    if "query_id" not in state:
        return []
    return [*state.get("past_queries", ()), past_query(cast("Any", state))]


def _query(query: PastQuery, said: Sequence[Feedback], *, traceparent: str | None) -> QueryView:
    outcome = query["outcome"]
    statuses = [one["status"] for one in query["executed"].values()]
    return QueryView(
        query_id=query["query_id"],
        outcome=None if outcome is None else outcome["code"],
        text="" if outcome is None else outcome["text"],
        calls={status: statuses.count(status) for status in sorted(set(statuses))},
        feedback=tuple(one for one in said if one.query_id == query["query_id"]),
        traceparent=traceparent,
    )


def _standing(state: Mapping[str, Any], pending: Sequence[ApprovalState]) -> Standing:
    if "query_id" not in state:
        return "unknown"
    if pending:
        return "waits for people"
    return "at work" if state.get("outcome") is None else "finished"


@asynccontextmanager
async def _redis(settings: Settings) -> AsyncGenerator[Any]:
    redis = connect(settings.redis_url, timeout_s=10.0, max_connections=4)
    try:
        yield redis
    finally:
        await redis.aclose()
