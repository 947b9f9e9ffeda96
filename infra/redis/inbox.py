"""The inbox in Redis: a hash per record, one round trip for a whole batch."""

from collections.abc import Sequence
from itertools import chain
from typing import Final, Literal

from redis.asyncio import Redis

from infra.claims import Claim, ClaimState, Failure
from infra.redis.client import Script
from infra.redis.keys import Keys

# Most records are new: one nil for each is read in a fraction of the time of five.
LOOK: Final = """
local found = {}
for i, key in ipairs(KEYS) do
  local known = redis.call('HMGET', key, 'state', 'starts', 'failures', 'due', 'first')
  found[i] = known[1] and known
end
return found
"""
# A settled record is never started again, whoever asks: its count is 0.
START: Final = """
local starts = {}
for i, key in ipairs(KEYS) do
  local state = redis.call('HGET', key, 'state')
  if state == 'done' or state == 'dead' then
    starts[i] = 0
  else
    starts[i] = redis.call('HINCRBY', key, 'starts', 1)
    redis.call('HSET', key, 'state', 'running', 'owner', ARGV[1])
    redis.call('HDEL', key, 'due')
    redis.call('PEXPIRE', key, ARGV[2])
  end
end
return starts
"""
# What is finished is written on a full server too, or it would run again.
SETTLE: Final = """#!lua flags=allow-oom
for i, key in ipairs(KEYS) do
  redis.call('DEL', key)
  redis.call('HSET', key, 'state', ARGV[i + 1])
  redis.call('PEXPIRE', key, ARGV[1])
end
"""
# Only a record that runs can fail or be handed back: a late report must not bring back one that is settled.
FAIL: Final = """
for i, key in ipairs(KEYS) do
  if redis.call('HGET', key, 'state') == 'running' then
    redis.call('HINCRBY', key, 'failures', 1)
    redis.call('HSET', key, 'due', ARGV[2 * i])
    redis.call('HSETNX', key, 'first', ARGV[2 * i + 1])
    redis.call('PEXPIRE', key, ARGV[1])
  end
end
"""
# On a full server too: a start that is not taken back counts as a death, and five of them as a crash loop.
RELEASE: Final = """#!lua flags=allow-oom
for i, key in ipairs(KEYS) do
  if redis.call('HGET', key, 'state') == 'running' and redis.call('HINCRBY', key, 'starts', -1) <= 0 then
    redis.call('DEL', key)
  end
end
"""

_STATES: Final[dict[bytes, ClaimState]] = {b"running": "running", b"done": "done", b"dead": "dead"}


class RedisInbox:
    """Claims of one consumer group, kept for `retention_s` after their last change; longer than their topics keep records."""

    def __init__(self, client: Redis, *, group: str, retention_s: int, keys: Keys | None = None) -> None:
        self._group = group
        self._retention_ms = retention_s * 1000
        self._keys = keys or Keys()
        self._look = Script(client, LOOK)
        self._start = Script(client, START)
        self._settle = Script(client, SETTLE)
        self._fail = Script(client, FAIL)
        self._release = Script(client, RELEASE)

    async def look(self, claim_ids: Sequence[str]) -> Sequence[Claim]:
        """What is known of each, in order.

        Raises:
            OutageError: No answer.
        """
        if not claim_ids:
            return []
        return [_claim(*fields) if fields else Claim() for fields in await self._look(self._claims(claim_ids))]

    async def start(self, claim_ids: Sequence[str], *, owner: str) -> Sequence[int]:
        """Write one more start for each. Returns the counts of starts; 0 for one that is settled and must not run.

        Raises:
            OutageError: No answer. The starts may have been written.
        """
        if not claim_ids:
            return []
        return list(await self._start(self._claims(claim_ids), [owner, self._retention_ms]))

    async def settle(self, settled: Sequence[tuple[str, Literal["done", "dead"]]]) -> None:
        """Remember how each ended; its counters go.

        Raises:
            OutageError: No answer. Settling again is harmless.
        """
        if settled:
            await self._settle(
                self._claims([claim_id for claim_id, _ in settled]), [self._retention_ms, *(state for _, state in settled)]
            )

    async def fail(self, failures: Sequence[Failure]) -> None:
        """Remember failed starts and when they are due.

        Raises:
            OutageError: No answer. The failures may have been written.
        """
        if failures:
            times = chain.from_iterable((failure.due_at_ms, failure.failed_at_ms) for failure in failures)
            await self._fail(self._claims([failure.claim_id for failure in failures]), [self._retention_ms, *times])

    async def release(self, claim_ids: Sequence[str]) -> None:
        """Take one start back from each.

        Raises:
            OutageError: No answer. The starts may have been taken back.
        """
        if claim_ids:
            await self._release(self._claims(claim_ids))

    def _claims(self, claim_ids: Sequence[str]) -> list[str]:
        return [self._keys.claim(self._group, claim_id) for claim_id in claim_ids]


def _claim(state: bytes, starts: bytes | None, failures: bytes | None, due: bytes | None, first_failed: bytes | None) -> Claim:
    return Claim(
        state=_STATES[state],
        starts=int(starts or 0),
        failures=int(failures or 0),
        due_at_ms=int(due) if due else None,
        first_failed_at_ms=int(first_failed) if first_failed else None,
    )
