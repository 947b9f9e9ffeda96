"""Questions that are called off, in Redis, for whichever process runs them."""

from collections.abc import Collection, Sequence
from typing import Any, Final, cast

from redis.asyncio import Redis

from infra.redis.client import Script, outages
from infra.redis.keys import CALL_OFF_TTL, Keys, milliseconds

# KEYS: called off. ARGV: time to live, query ids.
NOTE: Final = """
for i = 2, #ARGV do redis.call('SADD', KEYS[1], ARGV[i]) end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
"""


class RedisCallOffNotes:
    """Ids of questions, by thread, for `CALL_OFF_TTL` after the last one.

    Every call raises OutageError when Redis does not answer; whether it took effect is then unknown, and repeating it is safe.
    """

    def __init__(self, client: Redis, *, keys: Keys | None = None) -> None:
        self._client = client
        self._keys = keys or Keys()
        self._note = Script(client, NOTE)

    async def note(self, thread: str, query_ids: Collection[str]) -> None:
        """Keep some; none changes nothing."""
        if query_ids:
            await self._note([self._keys.called_off(thread)], [milliseconds(CALL_OFF_TTL), *sorted(query_ids)])

    async def noted(self, threads: Sequence[str]) -> list[frozenset[str]]:
        """What is kept of each thread, in their order. As good as always that is nothing, and one small command says so."""
        keys = [self._keys.called_off(thread) for thread in threads]
        with outages():
            if not keys or not await cast("Any", self._client).exists(*keys):
                return [frozenset() for _ in keys]
            pipeline = cast("Any", self._client.pipeline(transaction=False))
            for key in keys:
                pipeline.smembers(key)
            found = await pipeline.execute()
        return [frozenset(one.decode() for one in members) for members in found]
