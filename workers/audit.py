"""Auditing the outcomes on a cluster: read the topic once, hold it against itself and against what Redis knows."""

import json
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol, cast

from flows.approvals.chain import Audit, Cut, Findings, Head, Written
from infra.clock import SystemClock
from infra.kafka.reading import beginnings, scan
from infra.redis.chain import RedisAuditChain
from infra.redis.client import connect
from infra.redis.keys import Keys
from infra.settings import Settings
from topics.catalogue import OUTCOMES, Catalogue
from topics.chain import Outcome
from topics.envelope import decode, fact_id
from topics.errors import OutageError, RejectedError
from topics.records import RawRecord


class Heads(Protocol):
    """Who knows the last link of each tenant."""

    async def heads(self) -> Mapping[str, Head]:
        """The last link of every tenant, by tenant.

        Raises:
            OutageError: It does not answer.
        """
        ...


@dataclass(frozen=True, slots=True)
class Audited:
    """What an audit found; `redis` says whether the ends were compared, so that a cut-off end would have been found."""

    findings: Findings
    redis: bool


@dataclass(slots=True)
class _Reading:
    """The records of one tenant or of all, and where each partition begins."""

    tenant: str | None
    audit: Audit = field(default_factory=Audit)
    first_seen: dict[int, Written] = field(default_factory=dict[int, Written])

    def add(self, written: Written) -> None:
        self.first_seen.setdefault(written.partition, written)
        if self.tenant in {None, written.tenant}:
            self.audit.add(written)

    def cuts(self, begins: Mapping[int, int]) -> list[Cut]:
        """The partitions whose beginning is gone."""
        return [Cut(number, _linked_at(self.first_seen.get(number))) for number, offset in begins.items() if offset > 0]


async def audit(settings: Settings, *, tenant: str | None = None) -> Audited:
    """Check the chain of a tenant, or of all.

    Raises:
        ConfigError: The cluster cannot be reached, or the topic is missing.
        OutageError: It stopped answering half-way.
    """
    catalogue, reading = Catalogue(settings.topic_prefix), _Reading(tenant)
    topic = catalogue.name(OUTCOMES)
    async with _chain(settings) as chain:
        before = await _heads(chain, tenant)
        async with scan(settings.kafka(), [topic]) as records:
            async for record in records:
                reading.add(read(record, catalogue=catalogue))
        begins = await beginnings(settings.kafka(), topic)
        after = None if before is None else await _heads(chain, tenant)
    findings = reading.audit.findings(cuts=reading.cuts(begins), before=before, after=after)
    return Audited(findings, redis=after is not None)


async def outcomes(settings: Settings) -> AsyncGenerator[Written]:
    """Every outcome on the topic, in its order there, once each."""
    catalogue = Catalogue(settings.topic_prefix)
    seen: set[str] = set()
    async with scan(settings.kafka(), [catalogue.name(OUTCOMES)]) as records:
        async for record in records:
            written = read(record, catalogue=catalogue)
            once = json.dumps([written.tenant, (written.wire or {}).get("chain"), None if written.wire else written.where])
            if once not in seen:
                seen.add(once)
                yield written


async def linked_outcomes(settings: Settings) -> AsyncGenerator[tuple[str, Outcome]]:
    """Every outcome on the topic with its tenant: what a Redis that lost the chain learns it from."""
    catalogue = Catalogue(settings.topic_prefix)
    async with scan(settings.kafka(), [catalogue.name(OUTCOMES)]) as records:
        async for record in records:
            try:
                event = decode(record, catalogue=catalogue)
            except RejectedError:
                continue  # `sluice audit verify` names it
            if isinstance(event.payload, Outcome):
                yield event.tenant, event.payload


def read(record: RawRecord, *, catalogue: Catalogue) -> Written:
    """One record as an audit sees it: what a link covers, and whether key, id and content name the same fact."""
    tenant = (record.key or b"").decode(errors="replace").partition("/")[0]
    written = Written(record.position, record.partition, tenant)
    try:
        event = decode(record, catalogue=catalogue)
    except RejectedError as error:
        return replace(written, problem=f"it is no outcome: {error.reason_code}")
    written = replace(written, tenant=event.tenant, event_id=event.id, event_type=event.payload.TYPE)
    try:
        wire, problem = json.loads(record.value or b"", object_pairs_hook=_without_repeats), ""
    except ValueError:
        wire, problem = json.loads(record.value or b"{}"), "a name is there twice in it"
    if record.key != event.key.encode():
        problem = "its key is another thread's"
    elif event.id != fact_id(event.payload, tenant=event.tenant):
        problem = "its id is another outcome's"
    return replace(written, wire=wire, problem=problem)


def _without_repeats(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    listed = list(pairs)
    found = dict(listed)
    if len(found) != len(listed):
        raise ValueError
    return found


def _linked_at(written: Written | None) -> datetime | None:
    link: Any = (written.wire or {}).get("chain") if written else None
    try:
        return datetime.fromisoformat(cast("dict[str, Any]", link)["at"])
    except (TypeError, KeyError, ValueError):
        return None


async def _heads(chain: Heads, tenant: str | None) -> Mapping[str, Head] | None:
    try:
        found = await chain.heads()
    except OutageError:
        return None
    return {name: head for name, head in found.items() if tenant in {None, name}}


@asynccontextmanager
async def _chain(settings: Settings) -> AsyncGenerator[RedisAuditChain]:
    redis = connect(settings.redis_url, timeout_s=5.0, max_connections=4)
    try:
        yield audit_chain(settings, redis)
    finally:
        await redis.aclose()


def audit_chain(settings: Settings, redis: Any) -> RedisAuditChain:
    """The chain of these settings.

    A broker that forgets gets groups of its own at each start (`group_prefix`), and chains of their own for the same reason.
    """

    def recover() -> AsyncIterable[tuple[str, Outcome]]:
        return linked_outcomes(settings)

    return RedisAuditChain(redis, SystemClock(), recover, Keys(settings.redis_prefix), settings.group_prefix)
