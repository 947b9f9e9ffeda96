"""What a consumer group remembers of its positions, in Redis: a hash per group, for as long as the group is used."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from redis.asyncio import Redis

from infra.positions import TopicHistory, TopicPartition
from infra.redis.client import Script, outages
from infra.redis.keys import Keys

# On a full server too: a handful of fields, without which a lost position would look like a new group.
REMEMBER: Final = """#!lua flags=allow-oom
for i = 1, #ARGV do redis.call('HSET', KEYS[1], ARGV[i], '1') end
"""
BEGIN: Final = """#!lua flags=allow-oom
redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2])
return redis.call('HGETALL', KEYS[1])
"""
CHANGES_KEPT: Final = 1000


class RedisPositionMemory:
    """The memory of one group. A field `topic` holds how many partitions it began with; a field `topic/3`, that 3 was committed.

    Every call raises OutageError when Redis does not answer; repeating it is safe.
    """

    def __init__(self, client: Redis, *, group: str, keys: Keys | None = None) -> None:
        known = keys or Keys()
        self._client: Any = client
        self._key = known.positions(group)
        self._changes_key = known.position_changes(group)
        self._remember = Script(client, REMEMBER)
        self._begin = Script(client, BEGIN)

    async def history(self, topic: str) -> TopicHistory:
        """What is known of a topic."""
        with outages():
            return _history(topic, await self._client.hgetall(self._key))

    async def begin(self, topic: str, *, partitions: int) -> TopicHistory:
        """Remember how many partitions a topic has as the group begins it; the first word stands. Returns what is known now."""
        flat: Sequence[bytes] = await self._begin([self._key], [topic, partitions])
        return _history(topic, dict(zip(flat[::2], flat[1::2], strict=True)))

    async def remember(self, committed: Iterable[TopicPartition]) -> None:
        """Remember partitions of which a position was committed."""
        fields = [f"{topic}/{number}" for topic, number in committed]
        if fields:
            await self._remember([self._key], fields)

    async def note_change(self, change: Mapping[str, Any]) -> None:
        """Keep who set a position, and why; the latest ones."""
        pipeline = self._client.pipeline(transaction=True)
        pipeline.rpush(self._changes_key, json.dumps(change))
        pipeline.ltrim(self._changes_key, -CHANGES_KEPT, -1)
        with outages():
            await pipeline.execute()

    async def changes(self) -> list[dict[str, Any]]:
        """Who set positions, and why; oldest first."""
        with outages():
            found = cast("Sequence[bytes]", await self._client.lrange(self._changes_key, 0, -1))
        return [json.loads(one) for one in found]


def _history(topic: str, fields: Mapping[bytes, bytes]) -> TopicHistory:
    began = fields.get(topic.encode())
    prefix = f"{topic}/".encode()
    committed = frozenset(int(field.removeprefix(prefix)) for field in fields if field.startswith(prefix))
    return TopicHistory(None if began is None else int(began), committed)
