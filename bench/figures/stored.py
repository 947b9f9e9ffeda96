"""Everything that Redis holds, key by key, and the tenant that each key belongs to."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Final, cast

from redis.asyncio import Redis

from infra.redis.keys import decode

_READ: Final[Mapping[str, Callable[[Any, bytes], Awaitable[Any]]]] = {
    "string": lambda redis, key: redis.get(key),
    "hash": lambda redis, key: redis.hgetall(key),
    "list": lambda redis, key: redis.lrange(key, 0, -1),
    "set": lambda redis, key: redis.smembers(key),
    "zset": lambda redis, key: redis.zrange(key, 0, -1),
}


async def stored_texts(redis: Redis) -> AsyncGenerator[tuple[str, str]]:
    """Each key, with all of its fields and values as one text.

    Raises:
        KeyError: A key of a type that is not read here: an audit that passes over it would be no audit.
    """
    client = cast("Any", redis)
    async for key in client.scan_iter(count=1000):
        read = _READ[(await client.type(key)).decode()]
        yield key.decode(), "\n".join(_texts(await read(client, key)))


def owner_of(key: str, owners: Mapping[str, str]) -> str | None:
    """The tenant that a key names, or None where it is nobody's own.

    Args:
        owners: What may stand in a key -> the tenant whose it is: names of tenants, ids of their threads' checkpoints.
    """
    parts = (decode(part.strip("{}")) for part in key.split(":"))
    return next((owners[part] for part in parts if part in owners), None)


def _texts(value: Any) -> list[str]:
    if isinstance(value, bytes):
        return [value.decode(errors="replace")]
    if isinstance(value, Mapping):
        return [text for pair in cast("Mapping[Any, Any]", value).items() for text in _texts(pair)]
    return [text for one in value or () for text in _texts(one)]
