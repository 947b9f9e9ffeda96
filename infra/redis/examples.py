"""Examples of triage in Redis: a vector each, searched behind the tenant's tag."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final, cast

from redis.asyncio import Redis

from infra.redis.client import Script, outages
from infra.redis.keys import Keys, decode, encode
from infra.redis.vectors import blob, create_index, failures, tenant_tag
from topics.errors import RejectedError
from topics.example import Example

MOST: Final = 500

# Ids and their hashes, sorted, as one hash: the same examples give the same version, in whatever order they came.
_NEW_VERSION: Final = """
local all = redis.call('HGETALL', KEYS[1])
local lines = {}
for at = 1, #all, 2 do lines[#lines + 1] = all[at] .. '=' .. all[at + 1] end
table.sort(lines)
local version = string.sub(redis.sha1hex(table.concat(lines, '\\n')), 1, 8)
if #lines == 0 then redis.call('DEL', KEYS[2]) else redis.call('SET', KEYS[2], version) end
"""
# KEYS: the tenant's set, its version, what its examples' keys begin with.
# ARGV: how many there may be, the tenant's tag, then id, hash, example, vector of each.
_ADD: Final = f"""
local new = 0
for at = 3, #ARGV, 4 do if redis.call('HEXISTS', KEYS[1], ARGV[at]) == 0 then new = new + 1 end end
if new > 0 and redis.call('HLEN', KEYS[1]) + new > tonumber(ARGV[1]) then return -1 end
for at = 3, #ARGV, 4 do
  redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1])
  redis.call('HSET', KEYS[3] .. ARGV[at], 'tenant', ARGV[2], 'example', ARGV[at + 2], 'vector', ARGV[at + 3])
end
{_NEW_VERSION}
return new
"""
# KEYS as above. ARGV: ids.
_REMOVE: Final = f"""
local gone = 0
for at = 1, #ARGV do
  redis.call('DEL', KEYS[3] .. ARGV[at])
  gone = gone + redis.call('HDEL', KEYS[1], ARGV[at])
end
if gone > 0 then
{_NEW_VERSION}
end
return gone
"""


class RedisExamples:
    """Examples of triage, at most `most` a tenant. `prepare` it once before use.

    Every call raises OutageError when Redis does not answer; a change then happened as a whole or not at all, and repeating it
    is safe. Without a tenant each raises ValueError and sends nothing.

    Args:
        dimensions: Floats in a vector. Another number needs another prefix.
        most: A search compares with all of a tenant's, so there are not many.
    """

    def __init__(self, client: Redis, keys: Keys | None = None, *, dimensions: int = 384, most: int = MOST) -> None:
        self._client = client
        self._keys = keys or Keys()
        self._dimensions = dimensions
        self._most = most
        self._add = Script(client, _ADD)
        self._remove = Script(client, _REMOVE)

    async def prepare(self) -> None:
        """Create the index if there is none; any number of processes may do it at once.

        Raises:
            ConfigError: There is one for vectors of another length.
        """
        index = self._keys.example_index()
        source = ("FT.CREATE", index, "ON", "HASH", "PREFIX", 1, self._keys.every_example(), "SCHEMA", "tenant", "TAG")
        vector = ("vector", "VECTOR", "FLAT", 6, "TYPE", "FLOAT32", "DIM", self._dimensions, "DISTANCE_METRIC", "COSINE")
        await create_index(self._client, (*source, *vector), dimensions=self._dimensions)

    async def add(self, tenant: str, examples: Sequence[Example], vectors: Sequence[Sequence[float]]) -> int:
        """Keep examples, each in the place of the one with its id; all of them, or none. On disk on return.

        Returns:
            How many ids were not there before.

        Raises:
            RejectedError: Code `too_many_examples`: the tenant would have more than `most`. Nothing was stored.
            ValueError: Lengths differ, an id stands twice, or an example is of another tenant. Nothing was stored.
        """
        if len(examples) != len(vectors) or any(len(vector) != self._dimensions for vector in vectors):
            raise ValueError(f"each example needs a vector of {self._dimensions} floats")
        ids = [example.example_id for example in examples]
        if len(set(ids)) < len(ids) or any(example.tenant != tenant for example in examples):
            raise ValueError("an id stands twice, or an example belongs to another tenant")
        rows = [_row(example, vector) for example, vector in zip(examples, vectors, strict=True)]
        arguments = [self._most, tenant_tag(tenant), *(part for row in rows for part in row)]
        new = int(await self._add.durable(self._keys_of(tenant), arguments, behind=self._keys.durable()))
        if new < 0:
            raise self._too_many()
        return new

    async def check_room(self, tenant: str, examples: Sequence[Example]) -> None:
        """Refuse what `add` would refuse for its number, before anybody has paid for the vectors.

        Raises:
            RejectedError: Code `too_many_examples`.
        """
        kept = set(await self.ids(tenant))
        new = {one.example_id for one in examples} - kept
        if new and len(kept) + len(new) > self._most:
            raise self._too_many()

    async def remove(self, tenant: str, example_ids: Sequence[str]) -> int:
        """Take examples out. Returns how many of them there were. On disk on return."""
        ids = [encode(one) for one in example_ids]
        return int(await self._remove.durable(self._keys_of(tenant), ids, behind=self._keys.durable()))

    async def ids(self, tenant: str) -> list[str]:
        """The ids of all of a tenant's, sorted."""
        with outages():
            found = await cast("Any", self._client).hkeys(self._keys_of(tenant)[0])
        return sorted(decode(one.decode()) for one in found)

    async def of(self, tenant: str) -> Sequence[Example]:
        """All of a tenant's, by id.

        Raises:
            RejectedError: Code `bad_example`: one cannot be read.
        """
        pipeline = cast("Any", self._client.pipeline(transaction=False))
        for one in await self.ids(tenant):
            pipeline.hget(self._keys.example(tenant, one), "example")
        with outages():
            found = await pipeline.execute()
        return [_stored(one) for one in found if one is not None]  # one may be removed between the two

    async def version(self, tenant: str) -> str | None:
        """8 hex digits over all of a tenant's examples: others whenever one is added, changed or removed. None without any."""
        with outages():
            found: Any = await self._client.get(self._keys_of(tenant)[1])
        return None if found is None else found.decode()

    async def nearest(self, tenant: str, vector: Sequence[float], limit: int) -> Sequence[Example]:
        """Examples of the tenant by cosine similarity, best first; the query's tag is applied before the distance.

        Raises:
            OutageError, UnavailableError: No answer, or a failed search.
            RejectedError: Code `bad_example`: one cannot be read.
        """
        # Compared one by one: an approximate search may pass over a tenant that is small among many near others.
        nearest = "KNN $count @vector $vector HYBRID_POLICY ADHOC_BF AS distance"
        parameters = ("PARAMS", 4, "count", limit, "vector", blob(vector))
        order = ("SORTBY", "distance", "ASC", "LIMIT", 0, limit, "RETURN", 1, "example", "DIALECT", 2)
        query = f"(@tenant:{{{tenant_tag(tenant)}}})=>[{nearest}]"
        with failures():
            reply = await cast("Any", self._client).execute_command(
                "FT.SEARCH", self._keys.example_index(), query, *parameters, *order
            )
        found = [_stored(row[1]) for row in reply[2::2]]
        return [one for one in found if one.tenant == tenant]

    def _too_many(self) -> RejectedError:
        return RejectedError(f"a tenant may have {self._most} examples; remove some first", code="too_many_examples")

    def _keys_of(self, tenant: str) -> Sequence[str]:
        tenant_tag(tenant)
        return [self._keys.example_set(tenant), self._keys.example_version(tenant), self._keys.example(tenant)]


def _row(example: Example, vector: Sequence[float]) -> tuple[str, str, str, bytes]:
    """Id as in a key, hash of what it says, the example, and its vector."""
    text = json.dumps(asdict(example), ensure_ascii=False, sort_keys=True)
    return encode(example.example_id), hashlib.sha256(text.encode()).hexdigest()[:16], text, blob(vector)


def _stored(value: bytes) -> Example:
    try:
        return Example(**json.loads(value))
    except (ValueError, TypeError) as error:
        raise RejectedError("an example in Redis cannot be read; remove all, and add them again", code="bad_example") from error
