"""The door to Redis: how we connect, what a server must be, and what its errors mean."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, cast

from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from infra.redis.keys import PROBE_TTL, Keys, milliseconds
from topics.errors import ConfigError, OutageError

MODULES: Final = {"search": "RediSearch", "ReJSON": "RedisJSON"}
EVICTION_POLICY: Final = "noeviction"

_UNREACHED: Final = (exceptions.ConnectionError, exceptions.TimeoutError)
_OUTAGES: Final = (
    exceptions.OutOfMemoryError,
    exceptions.ReadOnlyError,
    exceptions.ClusterDownError,
    exceptions.MasterDownError,
    exceptions.TryAgainError,
)
# Replies that redis-py knows no type for: it gives them as plain response errors.
_OUTAGE_REPLIES: Final = ("OOM", "READONLY", "LOADING", "MISCONF", "NOREPLICAS", "BUSY ", "MASTERDOWN", "CLUSTERDOWN")
_REFUSALS: Final = (exceptions.AuthenticationError, exceptions.AuthorizationError, exceptions.NoPermissionError)


def connect(url: str, *, timeout_s: float, max_connections: int = 64) -> Redis:
    """A client on a pool that waits for a free connection instead of failing.

    A command is never repeated by the client: one whose answer was lost may have run, and only its caller knows whether it
    may run again. RESP2, because the search replies of RESP3 are read differently by each library above us.

    Args:
        timeout_s: Seconds for a connection, a free place in the pool, and each answer.
    """
    from_url = cast("Callable[..., BlockingConnectionPool]", BlockingConnectionPool.from_url)  # pyright: ignore[reportUnknownMemberType]  (redis-py)
    pool = from_url(
        url,
        max_connections=max_connections,
        timeout=timeout_s,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        health_check_interval=15,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
        decode_responses=False,
    )
    return Redis.from_pool(pool)


@contextmanager
def outages() -> Generator[None]:
    """Translate client errors: `OutageError` for a server that cannot serve now, `ConfigError` for one that refuses us.

    Whether an unanswered command took effect is unknown.
    """
    try:
        yield
    except _REFUSALS as error:
        raise ConfigError(f"Redis refuses this user or password: {error}") from error
    except _UNREACHED as error:
        why = f"Redis cannot serve: {type(error).__name__}; is it running, and is SLUICE_REDIS_URL right?"
        raise OutageError(why) from error
    except _OUTAGES as error:
        raise OutageError(f"Redis cannot serve: {type(error).__name__}") from error
    except exceptions.ResponseError as error:
        if str(error).startswith(_OUTAGE_REPLIES):
            raise OutageError(f"Redis cannot serve: {str(error).split(' ', 1)[0]}") from error
        raise


class Script:
    """A Lua script: one atomic step on the server, loaded again when the server has forgotten it."""

    def __init__(self, client: Redis, source: str) -> None:
        self._client = client
        self._run = client.register_script(source)

    async def __call__(self, keys: Sequence[str], arguments: Sequence[str | bytes | int] = ()) -> Any:
        """Run it.

        Raises:
            OutageError: No answer. Whether it ran is unknown.
        """
        with outages():
            return await cast("Any", self._run(keys=list(keys), args=list(arguments)))

    async def durable(
        self, keys: Sequence[str], arguments: Sequence[str | bytes | int] = (), *, behind: str | None = None, timeout_s: float = 3.0
    ) -> Any:
        """Run it, and return its answer when what it wrote is on the server's disk: both in one round trip.

        Args:
            behind: A key to write behind it (`Keys.durable`). Then everything that was acknowledged before is on disk as well: what
                the script found and did not write itself, too.

        Raises:
            OutageError: No answer, or the disk was not confirmed in time. It may have run, and may still become durable.
            ConfigError: The server has no append-only file.
        """
        parts = (len(keys), *keys, *arguments)
        try:
            with outages():
                return await self._confirmed("EVALSHA", self._run.sha, parts, behind, timeout_s)
        except exceptions.NoScriptError:
            # It did not run. What follows it only touched the disk.
            with outages():
                return await self._confirmed("EVAL", self._run.script, parts, behind, timeout_s)

    async def _confirmed(
        self, command: str, script: Any, parts: Sequence[str | bytes | int], behind: str | None, timeout_s: float
    ) -> Any:
        pipeline = cast("Any", self._client.pipeline(transaction=False))
        pipeline.execute_command(command, script, *parts)
        _wait(pipeline, behind, timeout_s)
        # As they are: an error that is raised by the pipeline no longer begins with its code.
        answer, *written, confirmed = await pipeline.execute(raise_on_error=False)
        for reply in (answer, *written):
            if isinstance(reply, Exception):
                raise reply
        _check_confirmed(confirmed, timeout_s)
        return answer


async def wait_durable(client: Redis, *, timeout_s: float = 3.0, keys: Keys | None = None) -> None:
    """Return when everything acknowledged so far is on the server's disk.

    WAITAOF waits for the writes of its own connection only, and a pool hands out any connection. A write goes ahead of it on
    the same one: the log is in order, so once that write is on disk, earlier ones are.

    Raises:
        OutageError: Not confirmed in time. The writes may still become durable.
        ConfigError: The server has no append-only file.
    """
    pipeline = cast("Any", client.pipeline(transaction=False))
    _wait(pipeline, (keys or Keys()).durable(), timeout_s)
    with outages():
        written, confirmed = await pipeline.execute(raise_on_error=False)
        if isinstance(written, Exception):
            raise written
        _check_confirmed(confirmed, timeout_s)


def _wait(pipeline: Any, behind: str | None, timeout_s: float) -> None:
    if behind is not None:
        pipeline.set(behind, b"1")
    pipeline.execute_command("WAITAOF", 1, 0, round(timeout_s * 1000))


def _check_confirmed(confirmed: Any, timeout_s: float) -> None:
    if isinstance(confirmed, exceptions.ResponseError) and "appendonly is disabled" in str(confirmed):
        raise ConfigError("Redis must run with `appendonly yes`") from confirmed
    if isinstance(confirmed, Exception):
        raise confirmed
    if confirmed[0] < 1:
        raise OutageError(f"Redis did not confirm its disk within {timeout_s} s")


async def check_server(client: Redis, *, keys: Keys | None = None) -> Sequence[str]:
    """Refuse a server that would lose or change what it is given. Returns warnings, a sentence each.

    Raises:
        ConfigError: Unreachable, a module is missing, keys may be evicted, no append-only file, or a command is refused.
    """
    try:
        with outages():
            modules = await _modules(client)
            settings = await _settings(client)
            await probe(client, keys=keys)
            await _search_and_scripts(client, keys or Keys())
    except OutageError as error:
        raise ConfigError(str(error)) from error
    except exceptions.ResponseError as error:
        raise ConfigError(f"Redis refuses a command that we need: {error}") from error
    missing = [product for name, product in MODULES.items() if name not in modules]
    if missing:
        raise ConfigError(f"Redis lacks {' and '.join(missing)}: use Redis 8 or Redis Stack")
    if settings["maxmemory-policy"] != EVICTION_POLICY:
        raise ConfigError(f"Redis may evict keys: set `maxmemory-policy {EVICTION_POLICY}` (it is {settings['maxmemory-policy']})")
    if settings["appendonly"] != "yes":
        raise ConfigError("Redis must run with `appendonly yes`: approvals and effects would not survive a restart")
    if settings["appendfsync"] != "always":
        return [f"appendfsync is {settings['appendfsync']}: durable writes wait up to a second; set `always`"]
    return []


async def _modules(client: Redis) -> frozenset[str]:
    listed = cast("Sequence[Any]", await cast("Any", client).execute_command("MODULE", "LIST"))
    return frozenset(_text(name) for entry in listed for name in _values(entry))


def _values(entry: Any) -> Sequence[Any]:
    return list(cast("Mapping[Any, Any]", entry).values()) if isinstance(entry, Mapping) else list(entry)


async def _settings(client: Redis) -> dict[str, str]:
    found = cast("Mapping[Any, Any]", await cast("Any", client).config_get("maxmemory-policy", "appendonly", "appendfsync"))
    return {_text(name): _text(value) for name, value in found.items()}


async def _search_and_scripts(client: Redis, keys: Keys) -> None:
    """Ask for what a user may be denied and that changes nothing: only the permission matters, so any other refusal is fine."""
    index = keys.probe("no such index")
    for command in (
        ("FT.SEARCH", index, "*"),
        ("FT.INFO", index),
        ("FT.CREATE", index),
        ("EVALSHA", "0" * 40, "0"),
        ("SCRIPT", "LOAD", ""),
    ):
        with suppress(exceptions.NoScriptError, exceptions.ResponseError), outages():
            await cast("Any", client).execute_command(*command)


async def probe(client: Redis, *, keys: Keys | None = None) -> None:
    """Write, read, list, expire and delete, as we do all day: a server that answers a ping may still take no write.

    Raises:
        OutageError: It cannot serve now; it may be full.
        ConfigError: It refuses us, or it does not give back what it was given.
    """
    place = (keys or Keys()).probe("check")
    pipeline = client.pipeline(transaction=True)
    pipeline.delete(place)
    pipeline.hset(place, "field", b"written")
    pipeline.delete(place)
    pipeline.rpush(place, b"written")
    pipeline.lrange(place, 0, -1)
    pipeline.pexpire(place, milliseconds(PROBE_TTL))
    pipeline.delete(place)
    with outages():
        answers = cast("Sequence[Any]", await pipeline.execute())
    if list(answers[4]) != [b"written"] or not answers[5] or answers[6] != 1:
        raise ConfigError("Redis did not give back what was written to it")


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
