"""Questions that wait for a thread's approvals, in Redis: an order and a set, changed together."""

from dataclasses import dataclass
from typing import Final, Protocol

from redis.asyncio import Redis

from infra.redis.client import Script
from infra.redis.keys import Keys
from topics.events import QueryAsked

# KEYS: order, queries. ARGV: query id, query. A query that is called off has a minus before it.
HOLD: Final = """
if redis.call('HSETNX', KEYS[2], ARGV[1], ARGV[2]) == 1 then redis.call('RPUSH', KEYS[1], ARGV[1]) end
"""
FIRST: Final = """
local id = redis.call('LINDEX', KEYS[1], 0)
if not id then return {} end
return {id, redis.call('HGET', KEYS[2], id)}
"""
ALL: Final = """
local found = {}
for i, id in ipairs(redis.call('LRANGE', KEYS[1], 0, -1)) do found[i] = {id, redis.call('HGET', KEYS[2], id)} end
return found
"""
# KEYS: order, queries. ARGV: query id.
CALL_OFF: Final = """
local query = redis.call('HGET', KEYS[2], ARGV[1])
if not query then return 0 end
if string.sub(query, 1, 1) ~= '-' then redis.call('HSET', KEYS[2], ARGV[1], '-' .. query) end
return 1
"""
DROP: Final = """
redis.call('LREM', KEYS[1], 0, ARGV[1])
return redis.call('HDEL', KEYS[2], ARGV[1])
"""


class Waiting(Protocol):
    """Whatever has the id and the question of a held query."""

    @property
    def query_id(self) -> str: ...  # noqa: D102 -- told by the class

    @property
    def query(self) -> QueryAsked: ...  # noqa: D102 -- told by the class


@dataclass(frozen=True, slots=True)
class HeldQuery:
    """A question that waits for a thread's approvals. One that is called off only waits to be told so."""

    query_id: str
    query: QueryAsked
    is_called_off: bool = False


class RedisHeldQueries:
    """Questions that wait, in order, per thread, until they are dropped.

    Every call raises OutageError when Redis does not answer; whether it took effect is then unknown, and repeating it is safe.
    """

    def __init__(self, client: Redis, *, keys: Keys | None = None) -> None:
        self._keys = keys or Keys()
        self._hold = Script(client, HOLD)
        self._first = Script(client, FIRST)
        self._all = Script(client, ALL)
        self._call_off = Script(client, CALL_OFF)
        self._drop = Script(client, DROP)

    async def hold(self, thread: str, held: Waiting) -> None:
        """Put one at the end, once. On disk on return."""
        row = [held.query_id, held.query.model_dump_json()]
        await self._hold.durable(self._of(thread), row, behind=self._keys.durable())

    async def first(self, thread: str) -> HeldQuery | None:
        """The next to run, or None."""
        match await self._first(self._of(thread)):
            case [query_id, query]:
                return _held(query_id, query)
            case _:
                return None

    async def all(self, thread: str) -> list[HeldQuery]:
        """Every one that waits, the next to run first."""
        return [_held(query_id, query) for query_id, query in await self._all(self._of(thread))]

    async def call_off(self, thread: str, query_id: str) -> bool:
        """Mark one: it must not run any more. On disk on return. False when it was not there."""
        return bool(await self._call_off.durable(self._of(thread), [query_id], behind=self._keys.durable()))

    async def drop(self, thread: str, query_id: str) -> bool:
        """Take one out, after it ran or was cancelled. False when it was not there."""
        return bool(await self._drop(self._of(thread), [query_id]))

    def _of(self, thread: str) -> list[str]:
        return [self._keys.held_order(thread), self._keys.held_queries(thread)]


def _held(query_id: bytes, query: bytes) -> HeldQuery:
    return HeldQuery(query_id.decode(), QueryAsked.model_validate_json(query.removeprefix(b"-")), query.startswith(b"-"))
