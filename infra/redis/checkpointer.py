"""LangGraph's Redis checkpointer, hardened: one key holds a checkpoint and its writes, one script writes it, fenced.

Values are stored as bytes in a hash, not as RedisJSON documents, which change the last digit of one float in nine. Listing
reads an index of the thread's own, not RediSearch, which ignores case and splits ids on commas.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    PendingWrite,
    writes_sort_key,
)
from langgraph.checkpoint.redis.aio import AsyncRedisSaver
from redis.asyncio import Redis

from infra.redis.client import Script, outages
from infra.redis.keys import Keys, decode, encode
from infra.redis.serializer import CheckpointSerializer
from topics.errors import FencedError, RejectedError

THREAD_ID: Final = re.compile(r"[a-z0-9_-]{1,200}")
READ_AT_ONCE: Final = 20

# In the index `!namespace:id` is a checkpoint, and `?namespace:id` one whose writes came before it: LangGraph does not wait
# for a checkpoint before it stores what the next step wrote. KEYS everywhere: index, checkpoints' prefix, fence.
_FENCED: Final = """
local function fenced(fence) return fence ~= '' and redis.call('GET', KEYS[3]) ~= fence end
local function keep(key, ttl)
  if ttl == '' then return end
  redis.call('PEXPIRE', key, ttl)
  redis.call('PEXPIRE', KEYS[1], ttl)
end
"""
# A command that needs memory goes first: once a script has written anything, a full server lets all of it through.
# ARGV: fence, time to live or nothing, name, parent, checkpoint, metadata.
PUT: Final = (
    _FENCED
    + """
if fenced(ARGV[1]) then return 'fenced' end
local key = KEYS[2] .. ARGV[3]
redis.call('HSET', key, 'parent', ARGV[4], 'checkpoint', ARGV[5], 'metadata', ARGV[6])
redis.call('ZADD', KEYS[1], 0, '!' .. ARGV[3])
redis.call('ZREM', KEYS[1], '?' .. ARGV[3])
keep(key, ARGV[2])
"""
)
# ARGV: fence, time to live or nothing, name, then for each write: whether it replaces, field, value.
PUT_WRITES: Final = (
    _FENCED
    + """
if fenced(ARGV[1]) then return 'fenced' end
local key = KEYS[2] .. ARGV[3]
if not redis.call('ZSCORE', KEYS[1], '!' .. ARGV[3]) then redis.call('ZADD', KEYS[1], 0, '?' .. ARGV[3]) end
for i = 4, #ARGV, 3 do
  redis.call(ARGV[i] == '1' and 'HSET' or 'HSETNX', key, ARGV[i + 1], ARGV[i + 2])
end
keep(key, ARGV[2])
"""
)
# ARGV: time to live to be refreshed or nothing, then names; or a namespace alone, with `newest` before it.
READ: Final = (
    _FENCED
    + """
local names = {unpack(ARGV, 2)}
if names[1] == 'newest' then
  local range = redis.call('ZREVRANGEBYLEX', KEYS[1], '(!' .. names[2] .. ';', '[!' .. names[2] .. ':', 'LIMIT', 0, 1)
  names = {range[1] and string.sub(range[1], 2)}
end
local found = {}
for _, name in ipairs(names) do
  if redis.call('ZSCORE', KEYS[1], '!' .. name) then
    local key = KEYS[2] .. name
    found[#found + 1] = {name, redis.call('HGETALL', key)}
    keep(key, ARGV[1])
  end
end
return found
"""
)
# ARGV: how many checkpoints of each namespace stay.
PRUNE: Final = """
local kept = {}
for _, member in ipairs(redis.call('ZREVRANGEBYLEX', KEYS[1], '+', '-')) do
  local namespace = string.match(member, '^(.*):')
  kept[namespace] = (kept[namespace] or 0) + 1
  if kept[namespace] > tonumber(ARGV[1]) then
    redis.call('DEL', KEYS[2] .. string.sub(member, 2))
    redis.call('ZREM', KEYS[1], member)
  end
end
"""


class CheckpointLostError(RejectedError):
    """The index knows a checkpoint that is no longer there: the thread cannot be continued, and must not start again."""

    code = "thread_gone"


class _Place(NamedTuple):
    thread: str
    namespace: str
    checkpoint_id: str | None


class HardenedRedisSaver(AsyncRedisSaver):
    """A checkpointer whose writes are atomic and fenced, and whose values come back as they were.

    `config["configurable"]["fence"]`, if given, must be the fence of the thread's lease (`RedisLeases.hold` under the same
    thread id). Every method raises ValueError for a thread id outside `[a-z0-9_-]`, OutageError when Redis does not answer,
    CheckpointLostError for a thread that was lost in part, BadCheckpointError for bytes that are not ours, and TypeError
    or ValueError for values that would not come back as they are; then nothing was written.
    """

    def __init__(self, client: Redis, *, keys: Keys | None = None, ttl: Mapping[str, Any] | None = None) -> None:
        """Build it; nothing is asked of the server.

        Args:
            ttl: `{"default_ttl": minutes, "refresh_on_read": bool}`. Must exceed the longest wait for an approval. Off by default.
        """
        super().__init__(redis_client=client, ttl=dict(ttl) if ttl else None)
        self._client = client
        self._keys = keys or Keys()
        self._values = CheckpointSerializer()
        self.serde = self._values
        self._put = Script(client, PUT)
        self._put_writes = Script(client, PUT_WRITES)
        self._read = Script(client, READ)
        self._prune = Script(client, PRUNE)

    def create_indexes(self) -> None:
        """Make none: searching is not needed, and concurrent set-up of the indexes fails."""

    async def asetup(self) -> None:
        """Remember the running loop, for the synchronous methods. May be called any number of times at once."""
        self.loop = asyncio.get_running_loop()

    def with_allowlist(self, extra_allowlist: Any) -> "HardenedRedisSaver":  # noqa: ARG002  nothing is allowed beyond our own list
        """Stay as it is: no type is ever built from a name in the stored bytes."""
        return self

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,  # noqa: ARG002  all values are in each checkpoint
        stream_mode: str = "values",  # noqa: ARG002  not used by any saver
    ) -> RunnableConfig:
        """Store a checkpoint, in one step.

        Raises:
            FencedError: Another worker is the thread's writer. Nothing was written.
        """
        place = _place(config)
        fields = [place.checkpoint_id or "", self._values.dumps(checkpoint), self._values.dumps(metadata)]
        await self._write(self._put, config, place.thread, _name(place.namespace, checkpoint["id"]), fields)
        return _config(place.thread, place.namespace, checkpoint["id"])

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote, all of it in one step. A write that is known stays, unless it is one of LangGraph's signals.

        Raises:
            FencedError: Another worker is the thread's writer. Nothing was written.
        """
        place = _place(config)
        fields: list[str | bytes] = []
        for ordinal, (channel, value) in enumerate(writes):
            index = WRITES_IDX_MAP.get(channel, ordinal)
            stored = self._values.dumps([task_id, task_path, index, channel, value])
            fields += ["1" if index < 0 else "0", f"write:{task_id}:{index}", stored]
        if fields:
            await self._write(self._put_writes, config, place.thread, _name(place.namespace, place.checkpoint_id or ""), fields)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """One checkpoint with its writes, in one round trip: the newest, unless the config names one. None when unknown."""
        place = _place(config)
        if (known := _known(config, place)) is not None:
            return self._tuple(place.thread, *known)
        names = [_name(place.namespace, place.checkpoint_id)] if place.checkpoint_id else ["newest", encode(place.namespace)]
        refreshed = self._ttl_ms() if (self.ttl_config or {}).get("refresh_on_read") else ""
        rows = await self._read(self._of(place.thread), [refreshed, *names])
        if not rows:
            return None
        if (kept := _configurable(config).get("keep_newest")) is not None:
            kept.append((place, rows[0]))
        return self._tuple(place.thread, *rows[0])

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002  the protocol's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Checkpoints that match, newest first within a thread. Without a config: of every thread."""
        left = limit
        async for found in self._listed(config, before):
            if left == 0:
                return
            if all(found.metadata.get(name) == value for name, value in (filter or {}).items()):
                left = None if left is None else left - 1
                yield found

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete every checkpoint and write of a thread, in one step."""
        await self._prune(self._of(_checked(thread_id)), [0])

    async def aprune(
        self, thread_ids: Sequence[str], *, strategy: str = "keep_latest", keep_last: int | None = None, max_results: int = 0
    ) -> None:
        """Delete old checkpoints of threads that are finished or wait; the newest of each namespace stays, with its writes.

        Args:
            strategy: `keep_latest`, or `delete` for all.
            keep_last: How many stay in each namespace, instead of a strategy.
            max_results: Without effect: everything is pruned.
        """
        del max_results
        if strategy not in {"keep_latest", "delete"}:
            raise ValueError(f"unknown strategy {strategy!r}")
        kept = keep_last if keep_last is not None else int(strategy == "keep_latest")
        for thread_id in thread_ids:
            await self._prune(self._of(_checked(thread_id)), [kept])

    async def _write(self, script: Script, config: RunnableConfig, thread: str, name: str, fields: Sequence[str | bytes]) -> None:
        fence = _configurable(config).get("fence")
        answer = await script(self._of(thread), ["" if fence is None else int(fence), self._ttl_ms(), name, *fields])
        if answer == b"fenced":
            raise FencedError(f"thread {thread} has a newer writer than fence {fence}")

    async def _listed(self, config: RunnableConfig | None, before: RunnableConfig | None) -> AsyncGenerator[CheckpointTuple]:
        newest = _configurable(before).get("checkpoint_id") if before else None
        async for thread in self._threads(config):
            names = [name for name in await self._history(thread) if _wanted(name, config, newest)]
            for start in range(0, len(names), READ_AT_ONCE):
                for row in await self._read(self._of(thread), ["", *names[start : start + READ_AT_ONCE]]):
                    # With a time to live, an old checkpoint ends before the index does.
                    if row[1] or not self.ttl_config:
                        yield self._tuple(thread, *row)

    async def _threads(self, config: RunnableConfig | None) -> AsyncGenerator[str]:
        if config is not None:
            yield _place(config).thread
            return
        with outages():
            async for key in cast("Any", self._client).scan_iter(match=self._keys.histories(), count=1000):
                yield self._keys.thread_of(key.decode())

    async def _history(self, thread: str) -> list[str]:
        with outages():
            members = await cast("Any", self._client).zrange(self._keys.history(thread), 0, -1)
        names = [member.decode()[1:] for member in members if member.startswith(b"!")]
        return sorted(names, key=lambda name: name.split(":")[1], reverse=True)

    def _tuple(self, thread: str, name: bytes, stored: Sequence[bytes]) -> CheckpointTuple:
        fields = dict(zip(stored[::2], stored[1::2], strict=True))
        namespace, checkpoint_id = (decode(part) for part in name.decode().split(":"))
        if b"checkpoint" not in fields:
            raise CheckpointLostError(f"checkpoint {checkpoint_id} of thread {thread} is gone")
        parent = fields[b"parent"].decode()
        return CheckpointTuple(
            config=_config(thread, namespace, checkpoint_id),
            checkpoint=self._values.loads(fields[b"checkpoint"]),
            metadata=self._values.loads(fields[b"metadata"]),
            parent_config=_config(thread, namespace, parent) if parent else None,
            pending_writes=self._pending(value for field, value in fields.items() if field.startswith(b"write:")),
        )

    def _pending(self, stored: Any) -> list[PendingWrite]:
        writes = [self._values.loads(value) for value in stored]
        writes.sort(key=lambda write: writes_sort_key(write[1], write[0], write[2]))
        return [(task_id, channel, value) for task_id, _, _, channel, value in writes]

    def _of(self, thread: str) -> list[str]:
        return [self._keys.history(thread), self._keys.checkpoints(thread), self._keys.fence(thread)]

    def _ttl_ms(self) -> int | str:
        minutes = (self.ttl_config or {}).get("default_ttl")
        return "" if minutes is None else round(minutes * 60_000)


def _configurable(config: RunnableConfig) -> Mapping[str, Any]:
    return config.get("configurable", {})


def _place(config: RunnableConfig) -> _Place:
    configurable = _configurable(config)
    return _Place(_checked(configurable["thread_id"]), configurable.get("checkpoint_ns", ""), configurable.get("checkpoint_id"))


def _known(config: RunnableConfig, place: _Place) -> Any:
    """What an earlier read of the same place found, once. Without a fence nothing would stop a write upon what is old by now."""
    known: list[Any] = _configurable(config).get("known_newest") or []
    if not known or known[0][0] != place or _configurable(config).get("fence") is None:
        return None
    return known.pop()[1]


def _checked(thread: Any) -> str:
    if not isinstance(thread, str) or not THREAD_ID.fullmatch(thread):
        raise ValueError("a thread id for the checkpointer has only a-z, 0-9, _ and -")
    return thread


def _name(namespace: str, checkpoint_id: str) -> str:
    return f"{encode(namespace)}:{encode(checkpoint_id)}"


def _config(thread: str, namespace: str, checkpoint_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}}


def _wanted(name: str, config: RunnableConfig | None, before: str | None) -> bool:
    namespace, checkpoint_id = (decode(part) for part in name.split(":"))
    asked: Mapping[str, Any] = _configurable(config) if config else {}
    return (
        asked.get("checkpoint_ns", namespace) == namespace
        and (asked.get("checkpoint_id") or checkpoint_id) == checkpoint_id
        and (before is None or checkpoint_id < before)
    )
