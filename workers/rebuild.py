"""The registry of approvals from topics alone: put back what Redis lost, and tell what differs."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal

from flows.approvals.fold import fold
from infra.kafka.reading import scan
from infra.redis.approvals import RedisApprovalRegistry
from infra.redis.client import connect
from infra.redis.keys import Keys
from infra.settings import Settings
from topics.approval_state import ApprovalState
from topics.catalogue import OUTCOMES, REQUESTS, Catalogue
from topics.envelope import decode
from topics.errors import RejectedError
from topics.events import Payload

Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Difference:
    """An approval that Redis and the topics do not tell alike.

    `missing`: not in Redis. `untold`: not on the topics, because they no longer keep it or it was never published.
    """

    tenant: str
    approval_id: str
    what: Literal["missing", "untold", "differs"]


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What was found: approvals on the topics and in Redis, what differed before, and how many were put back."""

    on_topics: int
    in_redis: int
    differences: tuple[Difference, ...]
    restored: int = 0


async def rebuild(settings: Settings, *, only_compare: bool = False) -> Rebuilt:
    """Fold both topics, compare with Redis, and put back what is missing there. What Redis knows is never overwritten.

    While workers run, an approval that moves between the two readings may be told as different.

    Raises:
        ConfigError: A server cannot be reached, or a topic is missing.
        OutageError: It stopped answering. What was put back is right; running it again does the rest.
    """
    told = await read_topics(settings)
    async with _registry(settings) as registry:
        known = {(one.tenant, one.request.approval_id): one for one in await registry.all()}
        found = tuple(differences(told, known))
        missing = [told[one.tenant, one.approval_id] for one in found if one.what == "missing"]
        if not only_compare:
            await registry.restore(missing)
    return Rebuilt(len(told), len(known), found, 0 if only_compare else len(missing))


async def read_topics(settings: Settings) -> dict[Name, ApprovalState]:
    """The states that the topics tell. Records that are no events of ours are passed over."""
    catalogue = Catalogue(settings.topic_prefix)
    events: list[tuple[str, Payload]] = []
    async with scan(settings.kafka(), [catalogue.name(REQUESTS), catalogue.name(OUTCOMES)]) as records:
        async for record in records:
            try:
                event = decode(record, catalogue=catalogue)
            except RejectedError:
                continue
            events.append((event.tenant, event.payload))
    return fold(events)


def differences(told: Mapping[Name, ApprovalState], known: Mapping[Name, ApprovalState]) -> Sequence[Difference]:
    """Where two tellings are not equal. That a request is on its topic is known from the topic itself."""
    found: list[Difference] = []
    for tenant, approval_id in sorted({*told, *known}):
        one, other = told.get((tenant, approval_id)), known.get((tenant, approval_id))
        if other is None:
            found.append(Difference(tenant, approval_id, "missing"))
        elif one is None:
            found.append(Difference(tenant, approval_id, "untold"))
        elif one != other.model_copy(update={"announced": True}):
            found.append(Difference(tenant, approval_id, "differs"))
    return found


@asynccontextmanager
async def _registry(settings: Settings) -> AsyncGenerator[RedisApprovalRegistry]:
    redis = connect(settings.redis_url, timeout_s=30.0, max_connections=4)
    try:
        registry = RedisApprovalRegistry(redis, keys=Keys(settings.redis_prefix))
        await registry.prepare()
        yield registry
    finally:
        await redis.aclose()
