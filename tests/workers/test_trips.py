"""How often a decision waits for Redis before its tool runs: whoever approved feels each wait, and most of all one for the disk."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from redis.asyncio import Redis

from infra.redis.approvals import RedisApprovalRegistry
from infra.redis.chain import RedisAuditChain
from infra.redis.checkpointer import HardenedRedisSaver
from infra.redis.effects import RedisEffectLedger
from infra.redis.held import RedisHeldQueries
from infra.redis.keys import Keys
from infra.redis.leases import RedisLeases
from tests.fakes.agents import World, one
from tests.fakes.chat_model import Script, obedient
from tests.fakes.clock import FakeClock
from tests.workers.desk import Desk, asked, decided
from topics.chain import Outcome
from topics.events import ApprovalAccepted, ApprovalRequested
from workers.audited import audited

# What each is for, in order. Each that ends on disk is there before the next begins: the verdict before its link, the link before
# its publication (behind it, before the lease), the claim before the effect.
TO_THE_TOOL = [
    "what an earlier start left untold",
    "the approval",
    "the checkpoint: can the verdict be applied",
    "the verdict, on disk",
    "its link, on disk",
    "the lease",
    "the checkpoint under the lease, for the run too",
    "what the gate wrote",
    "its step",
    "what dispatch wrote",
    "its step",
    "the claim, on disk",
]


class Trips(list[str]):
    """Names of the commands that went to the server together, one entry a trip."""

    def watch(self, monkeypatch: pytest.MonkeyPatch, client: Redis) -> None:
        command, pipeline = client.execute_command, client.pipeline

        async def one_command(*parts: Any, **options: Any) -> Any:
            self.append(parts[0])
            return await command(*parts, **options)

        def many_commands(*args: Any, **options: Any) -> Any:
            made = pipeline(*args, **options)
            execute = made.execute

            async def counted(*more: Any, **how: Any) -> Any:
                self.append(" ".join(parts[0] for parts, _ in made.command_stack))
                return await execute(*more, **how)

            made.execute = counted
            return made

        monkeypatch.setattr(client, "execute_command", one_command)
        monkeypatch.setattr(client, "pipeline", many_commands)


async def empty_topic() -> AsyncIterator[tuple[str, Outcome]]:
    for nothing in ():
        yield nothing


async def test_a_decision_waits_twelve_times_for_redis_before_its_tool_runs_and_three_times_for_the_disk(
    monkeypatch: pytest.MonkeyPatch, redis_client: Redis, redis_keys: Keys
):
    trips, at_the_tool = Trips(), 0
    saver, ledger = HardenedRedisSaver(redis_client, keys=redis_keys), RedisEffectLedger(redis_client, keys=redis_keys)
    world = World(script=Script(answer=obedient), saver=saver, ledger=ledger)
    call = world.service.call

    async def called(*args: Any, **named: Any) -> Any:
        nonlocal at_the_tool
        at_the_tool = len(trips)
        return await call(*args, **named)

    monkeypatch.setattr(world.service, "call", called)
    desk = Desk(
        world=world,
        registry=RedisApprovalRegistry(redis_client, keys=redis_keys),
        held=RedisHeldQueries(redis_client, keys=redis_keys),
        leases=RedisLeases(redis_client, keys=redis_keys),
    )
    handle = audited(
        desk.payloads, chain=RedisAuditChain(client=redis_client, clock=FakeClock(), recover=empty_topic, keys=redis_keys)
    )

    async def deliver(event: Any) -> list[Any]:
        async with aclosing(handle(event)) as payloads:
            return [payload async for payload in payloads]

    # The first of a process loads scripts, and learns the chain.
    one(ApprovalAccepted, await deliver(decided(one(ApprovalRequested, await deliver(asked("q1", "refund A"))), id_="d1")))
    request = one(ApprovalRequested, await deliver(asked("q2", "refund B")))
    trips.watch(monkeypatch, redis_client)
    one(ApprovalAccepted, await deliver(decided(request, id_="d2")))
    assert len(world.effects()) == 2
    to_the_tool = trips[:at_the_tool]
    assert len(to_the_tool) == len(TO_THE_TOOL), to_the_tool
    waits = [what for what, trip in zip(TO_THE_TOOL, to_the_tool, strict=True) if "WAITAOF" in trip]
    assert waits == [what for what in TO_THE_TOOL if what.endswith("on disk")]
