"""Which effects ran. A claim without a result is in doubt, and stays so until somebody says what happened."""

from dataclasses import dataclass
from typing import Final, Literal

from redis.asyncio import Redis

from infra.redis.client import Script
from infra.redis.keys import EFFECT_TTL, Keys, milliseconds
from topics.errors import FencedError

# KEYS: effect, fence. ARGV: fence, time to live.
BEGIN: Final = """
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return {'fenced'} end
local known = redis.call('HMGET', KEYS[1], 'state', 'result', 'ok')
if known[1] == 'done' then return {'done', known[2], known[3]} end
if known[1] then return {'in_doubt'} end
redis.call('HSET', KEYS[1], 'state', 'begun', 'fence', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {'new'}
"""
# KEYS: effect. ARGV: result, ok, time to live. A full server takes it too: without its result the effect would be in doubt.
FINISH: Final = """#!lua flags=allow-oom
if redis.call('HGET', KEYS[1], 'state') == 'done' then return 0 end
redis.call('HSET', KEYS[1], 'state', 'done', 'result', ARGV[1], 'ok', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
"""


@dataclass(frozen=True, slots=True)
class EffectClaim:
    """What the ledger knows of an effect: ours to run, done with its result, or begun by somebody who left no result."""

    state: Literal["new", "done", "in_doubt"]
    result: str | None = None
    ok: bool = True


class RedisEffectLedger:
    """The ledger of effects, kept for 90 days. `in_doubt` counts how often one was found without a result."""

    def __init__(self, client: Redis, *, keys: Keys | None = None) -> None:
        self._keys = keys or Keys()
        self._begin = Script(client, BEGIN)
        self._finish = Script(client, FINISH)
        self.in_doubt = 0

    async def begin(self, key: str, *, thread: str, fence: int) -> EffectClaim:
        """Claim an effect before it runs. A new claim is on disk when this returns.

        Raises:
            FencedError: The thread's fence is not ours. Nothing was claimed.
            OutageError: No answer. The effect may be claimed, and is then in doubt.
        """
        # Only a new claim must be on disk, and it is a write of the script's own: a full server still tells what is known.
        answer = await self._begin.durable([self._keys.effect(key), self._keys.fence(thread)], [fence, milliseconds(EFFECT_TTL)])
        match [part.decode() for part in answer]:
            case ["new"]:
                return EffectClaim("new")
            case ["done", result, ok]:
                return EffectClaim("done", result, ok == "1")
            case ["in_doubt"]:
                self.in_doubt += 1
                return EffectClaim("in_doubt")
            case _:
                raise FencedError(f"thread {thread} has a newer writer than fence {fence}")

    async def finish(self, key: str, *, result: str, ok: bool) -> None:
        """Record what came of it; the first record stands.

        Raises:
            OutageError: No answer. Without a record the effect is in doubt.
        """
        await self._finish([self._keys.effect(key)], [result, int(ok), milliseconds(EFFECT_TTL)])
