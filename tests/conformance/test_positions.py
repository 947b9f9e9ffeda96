"""One behaviour of position memories: in memory, and in Redis."""

from typing import Any

import pytest

from infra.positions import PositionMemory, TopicHistory
from infra.redis.keys import Keys
from infra.redis.positions import RedisPositionMemory
from tests.fakes.positions import MemoryPositions


@pytest.fixture(params=["memory", "redis"])
def memory(request: pytest.FixtureRequest) -> PositionMemory:
    if request.param == "memory":
        return MemoryPositions()
    client, keys = request.getfixturevalue("redis_client"), request.getfixturevalue("redis_keys")
    return RedisPositionMemory(client, group="triage", keys=keys)


async def test_nothing_is_known_of_a_new_group(memory: PositionMemory) -> None:
    assert await memory.history("tickets") == TopicHistory()


async def test_the_first_word_about_a_topic_stands(memory: PositionMemory) -> None:
    assert await memory.begin("tickets", partitions=3) == TopicHistory(3)
    assert await memory.begin("tickets", partitions=4) == TopicHistory(3)
    assert await memory.history("tickets") == TopicHistory(3)


async def test_committed_partitions_are_known_by_topic(memory: PositionMemory) -> None:
    await memory.remember([("tickets", 0), ("tickets", 11), ("tickets.replay", 2)])
    await memory.remember([("tickets", 0)])
    await memory.remember([])
    assert await memory.history("tickets") == TopicHistory(None, frozenset({0, 11}))
    assert await memory.history("tickets.replay") == TopicHistory(None, frozenset({2}))
    assert await memory.begin("tickets", partitions=12) == TopicHistory(12, frozenset({0, 11}))


async def test_groups_know_nothing_of_each_other_and_changes_are_kept_with_their_reasons(
    redis_client: Any, redis_keys: Keys
) -> None:
    ours, theirs = (RedisPositionMemory(redis_client, group=name, keys=redis_keys) for name in ("a", "b"))
    await ours.remember([("t", 1)])
    await ours.note_change({"by": "ann", "because": "restored"})
    await ours.note_change({"by": "bob", "because": "again"})
    assert [one["by"] for one in await ours.changes()] == ["ann", "bob"]
    assert (await theirs.history("t"), await theirs.changes()) == (TopicHistory(), [])
