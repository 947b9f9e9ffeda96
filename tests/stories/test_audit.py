"""The chain of outcomes on real brokers: proven, learned again by a Redis that lost it, cut by retention, forged by a stranger."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

from infra.kafka.publisher import RawProducer, raw_producer
from infra.redis.chain import RedisAuditChain
from infra.redis.client import connect
from tests.stories.servers import Realm, Servers
from topics.catalogue import OUTCOMES
from topics.chain import Outcome, linked
from topics.envelope import encode
from topics.events import ApprovalRefused
from workers.audit import Audited, audit, audit_chain, outcomes

pytestmark = pytest.mark.story


@dataclass
class Ledger:
    """Outcomes as a worker numbers and writes them."""

    realm: Realm
    redis: Any
    producer: RawProducer

    @property
    def chain(self) -> RedisAuditChain:
        """Of a process that has just started."""
        return audit_chain(self.realm.settings, self.redis)

    async def write(self, tenant: str, numbers: range) -> list[Outcome]:
        chain, written = self.chain, list[Outcome]()
        for number in numbers:
            said = ApprovalRefused(approval_id=f"a{number}", thread_id=f"T-{number % 9}", decision_id=f"d{number}", code="late")
            outcome = await chain.append(tenant, said, cause="story")
            await self.publish(tenant, outcome)
            await chain.told(tenant, outcome)
            written.append(outcome)
        return written

    async def publish(self, tenant: str, outcome: Outcome) -> None:
        now = datetime.now(UTC)
        await self.producer.write(
            encode(outcome, catalogue=self.realm.catalogue, tenant=tenant, source="story", now=now, ordinal="0")
        )

    async def audit(self, tenant: str) -> Audited:
        return await audit(self.realm.settings, tenant=tenant)

    async def forget(self) -> None:
        """Redis loses what it knew of the chain."""
        prefix = self.chain.keys.prefix
        async for key in self.redis.scan_iter(match=f"{prefix}:chain*", count=1000):
            await self.redis.delete(key)


@asynccontextmanager
async def ledger_in(servers: Servers) -> AsyncIterator[Ledger]:
    realm = servers.portal.call(servers.make_realm, "audit")
    async with AsyncExitStack() as stack:
        redis = connect(realm.settings.redis_url, timeout_s=10.0)
        stack.push_async_callback(redis.aclose)
        yield Ledger(realm, redis, await stack.enter_async_context(raw_producer(realm.settings.kafka())))


async def test_the_chain_outlives_redis_and_retention_and_knows_a_stranger(servers: Servers):
    async with ledger_in(servers) as ledger:
        first = await ledger.write("acme", range(1, 13))
        await ledger.write("globex", range(1, 4))
        found = await ledger.audit("acme")
        assert (found.findings.faults, found.redis, found.findings.proofs["acme"].last) == ((), True, 12)

        await ledger.forget()
        assert "no chain" in (await ledger.audit("acme")).findings.faults[0].what
        assert (await ledger.write("acme", range(12, 13))) == first[-1:], "the same outcome keeps its link"
        assert [one.chain.number for one in await ledger.write("acme", range(13, 15)) if one.chain] == [13, 14]
        assert (await ledger.audit("acme")).findings.faults == ()
        exported = [one async for one in outcomes(ledger.realm.settings)]
        assert (len(exported), {one.problem for one in exported}) == (14 + 3, {""})

        if servers.is_kafka:
            await cut_by_retention(ledger)

        last = (await ledger.write("acme", range(15, 16)))[0].chain
        assert last is not None
        forged = ApprovalRefused(approval_id="a1", thread_id="T-1", decision_id="forged", code="late")
        now = datetime.now(UTC)
        await ledger.publish("acme", linked(forged, tenant="acme", number=16, previous=last.digest, at=now))
        fault = (await ledger.audit("acme")).findings.faults[0]
        assert (fault.number, "written by somebody else" in fault.what) == (16, True)
        assert (await ledger.audit("globex")).findings.faults == ()


async def cut_by_retention(ledger: Ledger) -> None:
    """The beginning of every partition but one goes; what is left is proven, and from which number on is told."""
    settings = ledger.realm.settings
    admin = AIOKafkaAdminClient(bootstrap_servers=settings.kafka_bootstrap)
    await admin.start()
    try:
        topic = ledger.realm.catalogue.name(OUTCOMES)
        found = {one.where async for one in outcomes(settings)}
        cut = {int(where.rsplit("/", 2)[1]) for where in found if where.endswith("/1")}
        await admin.delete_records({TopicPartition(topic, partition): RecordsToDelete(before_offset=1) for partition in cut})
    finally:
        await admin.close()
    proof = (await ledger.audit("acme")).findings
    assert proof.faults == ()
    assert 1 < proof.proofs["acme"].first <= proof.proofs["acme"].last == 14
