"""P12: the inbox of approvals is a view of topics. Redis's copy is dropped, made again from the topics alone, and is the same."""

import random
from typing import Any, cast

import pytest
from redis.asyncio import Redis

from infra.redis.approvals import RedisApprovalRegistry
from infra.redis.client import connect
from infra.redis.keys import Keys
from tests.fakes.clock import FakeClock
from tests.fakes.verifier import TrustingVerifier
from tests.stories.servers import KAFKA, Realm, Servers
from tests.workers.desk import decided, event
from tests.workers.test_moments import AnyAgent, Threads, waits
from topics.approval_state import ApprovalQuery
from topics.events import ApprovalDue, ApprovalRequested, ApprovalWithdrawn, Payload, Terms
from workers.approvals import handle_decision, handle_due
from workers.client import Client, open_client
from workers.rebuild import Difference, rebuild

TERMS = Terms(people=("ana", "bo", "cy"), quorum=2, remind_every_s=100, expires_after_s=600)
COUNT = 40

pytestmark = [pytest.mark.story, KAFKA]


class House:
    """Approvals whose state is in Redis and whose events are on the broker; the threads behind them do nothing."""

    def __init__(self, realm: Realm, redis: Redis, client: Client) -> None:
        self.clock = FakeClock()
        self.client = client
        self.registry = RedisApprovalRegistry(redis, keys=Keys(realm.settings.redis_prefix))

    async def ask(self, tenant: str, request: ApprovalRequested) -> None:
        await self.registry.open(tenant, [request])
        await self._tell(tenant, request)
        await self.registry.announced(tenant, request.approval_id)

    async def decide(self, tenant: str, request: ApprovalRequested, decision: str, *, id_: str, approver: str) -> None:
        one = decided(request, decision, id_=id_, tenant=tenant, approver=approver)
        handled = handle_decision(
            one,
            agent=cast("Any", AnyAgent()),
            registry=self.registry,
            conversation=cast("Any", Threads()),
            verifier=TrustingVerifier(roles={"ana": {"refunds"}}),
            clock=self.clock,
        )
        async for payload in handled:
            await self._tell(tenant, payload)

    async def let_time_pass(self, seconds: float) -> None:
        self.clock.advance(seconds)
        for state in await self.registry.due(self.clock.now(), limit=1_000):
            moment, request = state.due(self.clock.now()), state.request
            assert moment is not None
            due = ApprovalDue(approval_id=request.approval_id, thread_id=request.thread_id, step=moment.step, number=moment.number)
            handled = handle_due(
                event("due", due, tenant=state.tenant),
                registry=self.registry,
                conversation=cast("Any", Threads()),
                clock=self.clock,
            )
            async for payload in handled:
                await self._tell(state.tenant, payload)

    async def withdraw(self, tenant: str, request: ApprovalRequested) -> None:
        reason = "The asker called it off."
        state = await self.registry.withdraw(tenant, request.approval_id, reason)
        if state.status == "withdrawn":
            told = ApprovalWithdrawn(approval_id=request.approval_id, thread_id=request.thread_id, reason=reason)
            await self._tell(tenant, told)

    async def _tell(self, tenant: str, payload: Payload) -> None:
        await self.client.publish(payload, tenant=tenant, event_id=None)


async def live(house: House, rng: random.Random) -> None:
    """Two tenants' approvals, some decided, some withdrawn, some expired, some waiting; decisions that fail in each way."""
    requests: list[tuple[str, ApprovalRequested]] = []
    for number in range(COUNT):
        terms = TERMS.model_copy(update={"expires_after_s": rng.choice([600, 5_000])})
        request = waits(number, terms).model_copy(update={"amount": number, "tool": f"tool {number % 3}"})
        requests.append((rng.choice(["acme", "globex"]), request))
        await house.ask(*requests[-1])
    for round_ in range(3):
        for tenant, request in requests:
            approver, choice = rng.choice(["ana", "bo", "cy", "dan", "rita"]), rng.choice(["approve"] * 8 + ["reject"])
            if rng.random() < 0.5:
                id_ = f"{round_}:{request.approval_id}"
                await house.decide(tenant, request, choice, id_=id_, approver=approver)
                if rng.random() < 0.2:
                    await house.decide(tenant, request, choice, id_=id_, approver=approver)  # delivered again
            elif rng.random() < 0.05:
                await house.withdraw(tenant, request)
        await house.let_time_pass(330)


async def drop_approvals(redis: Redis, keys: Keys) -> int:
    found = [key async for key in redis.scan_iter(match=f"{keys.prefix}:{{approvals}}:*", count=1_000)]
    await redis.delete(*found)
    return len(found)


async def test_what_redis_lost_is_rebuilt_from_the_topics_alone(servers: Servers) -> None:
    realm = await servers.realm("rebuild")
    redis, keys = connect(realm.settings.redis_url, timeout_s=10.0), Keys(realm.settings.redis_prefix)
    try:
        async with open_client(realm.settings, source="story") as client:
            house = House(realm, redis, client)
            await house.registry.prepare()
            await live(house, random.Random(7))
            before, timers = await state_of(house.registry)
            statuses = {one.status for one in before}
            assert statuses == {"pending", "decided", "withdrawn", "expired"}, "the run shows little"
            assert (await rebuild(realm.settings, only_compare=True)).differences == ()

            inbox = [one.request.approval_id for one in await house.registry.pending(None, limit=COUNT)]
            assert await drop_approvals(redis, keys) > COUNT
            assert await house.registry.pending(None, limit=COUNT) == ()
            compared = await rebuild(realm.settings, only_compare=True)
            assert {one.what for one in compared.differences} == {"missing"}
            assert compared.restored == 0

            found = await rebuild(realm.settings)
            assert (found.on_topics, found.restored) == (COUNT, COUNT)
            assert await state_of(house.registry) == (before, timers)
            assert [one.request.approval_id for one in await house.registry.pending(None, limit=COUNT)] == inbox
            some = await house.registry.search(ApprovalQuery(None, tool="tool 1", min_amount=0, limit=COUNT))
            assert {one.request.approval_id for one in some.approvals} == {
                one.request.approval_id for one in before if one.status == "pending" and one.request.tool == "tool 1"
            }
            await nothing_known_is_overwritten(realm, house)
    finally:
        await redis.aclose()


async def nothing_known_is_overwritten(realm: Realm, house: House) -> None:
    """A change that is not on the topics yet stays, and is told as different."""
    [state, *_] = await house.registry.pending(None, limit=1)
    after = state.changed(reminders=99)
    assert await house.registry.store(after)
    found = await rebuild(realm.settings)
    assert found.differences == (Difference(state.tenant, state.request.approval_id, "differs"),)
    assert await house.registry.find(state.tenant, state.request.approval_id) == after


async def state_of(registry: RedisApprovalRegistry) -> tuple[list[Any], dict[tuple[str, str], float]]:
    states = sorted(await registry.all(), key=lambda one: (one.tenant, one.request.approval_id))
    due = {(one.tenant, one.request.approval_id): one.moments()[0].at.timestamp() for one in states if one.moments()}
    timers = await registry.timers()
    assert timers == pytest.approx(due), "each wakes when its next moment comes"
    return states, timers
