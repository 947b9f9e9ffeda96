"""One behaviour of the chain of outcomes: in memory, and in Redis."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from flows.approvals.chain import Written
from infra.redis.chain import RedisAuditChain
from tests.fakes.chain import MemoryAuditChain
from tests.flows.approvals.audits import verify
from topics.chain import Outcome, on_the_wire
from topics.events import ApprovalExpired, ApprovalRefused


class Now:
    def now(self) -> datetime:
        return datetime.now(UTC)


async def nothing() -> AsyncIterator[tuple[str, Outcome]]:
    for one in ():
        yield one


@pytest.fixture(params=["memory", "redis"])
def chain(request: pytest.FixtureRequest) -> Any:
    if request.param == "memory":
        return MemoryAuditChain()
    client, keys = request.getfixturevalue("redis_client"), request.getfixturevalue("redis_keys")
    return RedisAuditChain(client, Now(), nothing, keys)


def refused(number: int, code: Any = "late") -> ApprovalRefused:
    return ApprovalRefused(approval_id="a1", thread_id="T-1", decision_id=f"d{number}", code=code)


def expired(number: int) -> ApprovalExpired:
    return ApprovalExpired(approval_id=f"a{number}", thread_id="T-1")


def faults(outcomes: list[Outcome], heads: Any = None) -> list[str]:
    written = [Written(f"o/0/{n}", 0, "acme", "x", one.TYPE, on_the_wire(one)) for n, one in enumerate(outcomes)]
    return [fault.what for fault in verify(written, before=heads, after=heads).faults]


async def test_numbers_have_no_gaps_and_each_link_holds_the_one_before(chain: Any) -> None:
    outcomes = [await chain.append("acme", refused(number), cause="c") for number in range(5)]
    outcomes.append(await chain.append("acme", expired(1), cause="c"))
    await chain.append("globex", refused(1), cause="c")
    assert [one.chain.number for one in outcomes] == [1, 2, 3, 4, 5, 6]
    for one in outcomes:
        await chain.told("acme", one)
    assert faults(outcomes, {"acme": (await chain.heads())["acme"]}) == []


async def test_the_same_outcome_again_keeps_its_link_and_another_answer_gets_its_own(chain: Any) -> None:
    first = await chain.append("acme", refused(1), cause="c")
    assert await chain.append("acme", refused(1), cause="another delivery") == first
    other = await chain.append("acme", refused(1, "stale"), cause="c")
    assert (first.chain.number, other.chain.number) == (1, 2)
    assert faults([first, other]) == []


async def test_what_was_linked_is_untold_until_it_is_told(chain: Any) -> None:
    first = await chain.append("acme", refused(1), cause="c")
    second = await chain.append("acme", refused(2), cause="c")
    other = await chain.append("acme", refused(3), cause="d")
    assert await chain.untold("acme", cause="c") == [first, second]
    assert await chain.untold("globex", cause="c") == []
    await chain.told("acme", first)
    assert await chain.untold("acme", cause="c") == [second]
    assert (await chain.heads())["acme"].untold == {2, 3}
    for one in (second, other, other):
        await chain.told("acme", one)
    assert (await chain.heads())["acme"].untold == frozenset()


async def test_many_at_once_get_one_chain(chain: Any) -> None:
    outcomes: list[Outcome] = []

    async def add(number: int) -> None:
        outcomes.append(await chain.append("acme", refused(number % 30), cause="c"))

    async with anyio.create_task_group() as tasks:
        for number in range(60):
            tasks.start_soon(add, number)
    assert sorted({one.chain.number for one in outcomes if one.chain}) == list(range(1, 31))
    assert faults(outcomes) == []


async def test_two_processes_race_for_one_chain(redis_client: Any, redis_keys: Any) -> None:
    chains = [RedisAuditChain(redis_client, Now(), nothing, redis_keys) for _ in range(3)]
    outcomes: list[Outcome] = []

    async def add(number: int) -> None:
        outcomes.append(await chains[number % 3].append("acme", refused(number // 2), cause="c"))

    async with anyio.create_task_group() as tasks:
        for number in range(60):
            tasks.start_soon(add, number)
    assert sorted({one.chain.number for one in outcomes if one.chain}) == list(range(1, 31))
    assert (
        faults(outcomes, await chains[0].heads() | {"acme": replace((await chains[0].heads())["acme"], untold=frozenset())}) == []
    )


async def test_a_redis_that_lost_the_chain_learns_it_from_the_topic(redis_client: Any, redis_keys: Any) -> None:
    topic: list[Outcome] = []

    async def on_topic() -> AsyncIterator[tuple[str, Outcome]]:
        for one in reversed(topic):
            yield "acme", one

    chain = RedisAuditChain(redis_client, Now(), on_topic, redis_keys)
    topic += [await chain.append("acme", refused(number), cause="c") for number in range(5)]
    async for key in redis_client.scan_iter(match=f"{redis_keys.prefix}:*"):
        await redis_client.delete(key)
    for process in (chain, RedisAuditChain(redis_client, Now(), on_topic, redis_keys)):
        assert await process.append("acme", refused(2), cause="redelivered") == topic[2]
        topic.append(await process.append("acme", refused(len(topic)), cause="c"))
    fresh = await chain.append("globex", refused(1), cause="c")
    assert fresh.chain is not None
    assert ([one.chain.number for one in topic if one.chain], fresh.chain.number) == ([1, 2, 3, 4, 5, 6, 7], 1)
    assert faults(topic) == []


async def test_what_is_given_between_two_looks_at_a_head_is_not_missing(
    monkeypatch: pytest.MonkeyPatch, redis_client: Any, redis_keys: Any
) -> None:
    chain = RedisAuditChain(redis_client, Now(), nothing, redis_keys)
    first = await chain.append("acme", refused(1), cause="c")
    await chain.told("acme", first)
    command, looks = redis_client.execute_command, 0

    async def and_another_is_given(*parts: Any, **options: Any) -> Any:
        nonlocal looks
        answer = await command(*parts, **options)
        looks += parts[0] in {"HMGET", "HKEYS", "HGETALL"}
        if looks == 1:
            await chain.append("acme", refused(2), cause="c")
        return answer

    monkeypatch.setattr(redis_client, "execute_command", and_another_is_given)
    heads = await chain.heads()
    assert looks == 2
    assert faults([first], {"acme": heads["acme"]}) == []


async def test_what_others_left_untold_is_not_taken_for_one_s_own(chain: Any) -> None:
    """Causes are what strangers wrote into their events."""
    mine = await chain.append("acme", refused(1), cause='s\nd"1')
    for number, cause in enumerate(['s\nd"12', "s\nd", 's\nd"1","outcome":"', "é"], start=2):
        await chain.append("acme", refused(number), cause=cause)
    assert await chain.untold("acme", cause='s\nd"1') == [mine]
    assert len(await chain.untold("acme", cause="é")) == 1
