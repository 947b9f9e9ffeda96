"""One writer per thread: a lease with a token, renewed while it is held, and a fence that grows with every grant."""

import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

import anyio
from redis.asyncio import Redis

from infra.redis.client import Script
from infra.redis.keys import FENCE_TTL, Keys, milliseconds
from topics.errors import FencedError, LeaseBusyError, OutageError

# A grant is one step: a fence without its lease, or a lease without its fence, would let two writers agree. A fence is never less
# than the server's milliseconds: one that lost its fences, or got older ones back, must not give again what a writer of before may
# still hold, and attempts, a thousand to a fence, go on growing. They stay exact in any JSON reader, below 2^53, until 2255.
GRANT: Final = """
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 0 end
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local fence = math.max(tonumber(redis.call('GET', KEYS[2]) or '0') + 1, now_ms)
redis.call('SET', KEYS[2], string.format('%.0f', fence), 'PX', ARGV[3])
return fence
"""
RENEW: Final = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
"""
RELEASE: Final = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
"""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write one thread. `fence` grows with every grant of that thread, over a loss of the server's data too."""

    thread: str
    fence: int


@dataclass(slots=True)
class _Held:
    key: str
    expires_at_s: float
    token: str = field(default_factory=lambda: secrets.token_hex(16))
    lost: FencedError | OutageError | None = None


class RedisLeases:
    """Leases of threads. A crashed holder's lease ends by itself after `lease_ms`."""

    def __init__(self, client: Redis, *, lease_ms: int = 15_000, keys: Keys | None = None) -> None:
        self._lease_ms = lease_ms
        self._keys = keys or Keys()
        self._grant = Script(client, GRANT)
        self._renew = Script(client, RENEW)
        self._release = Script(client, RELEASE)

    @asynccontextmanager
    async def hold(self, thread: str) -> AsyncGenerator[Lease, None]:
        """Hold a thread for as long as the block runs.

        Raises:
            LeaseBusyError: Another worker holds it; the block did not run.
            FencedError: Somebody else has it now. The block was cancelled; what it wrote under its fence before counts.
            OutageError: Redis did not grant it, or could not confirm it before it ended; then the block was cancelled.
        """
        held = _Held(self._keys.lease(thread), anyio.current_time() + self._lease_ms / 1000)
        fence = await self._granted(held, thread)
        if not fence:
            raise LeaseBusyError(f"thread {thread} is held by another worker")
        failure: BaseException | None = None
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._keep, held, group.cancel_scope)
                try:
                    yield Lease(thread, fence)
                except (Exception, GeneratorExit) as error:  # noqa: BLE001  raised again below: the group would wrap it
                    failure = error
                group.cancel_scope.cancel()
            if held.lost:
                raise held.lost from failure
            if failure:
                raise failure
        finally:
            await self._let_go(held)

    async def _granted(self, held: _Held, thread: str) -> int:
        try:
            arguments = [held.token, self._lease_ms, milliseconds(FENCE_TTL)]
            return int(await self._grant([held.key, self._keys.fence(thread)], arguments))
        except BaseException:
            # The answer is lost or nobody waits for it: an unknown holder would block the thread until the lease ends.
            await self._let_go(held)
            raise

    async def _keep(self, held: _Held, block: anyio.CancelScope) -> None:
        while held.lost is None:
            await anyio.sleep(self._lease_ms / 3000)
            held.lost = await self._renewed(held)
        block.cancel()

    async def _renewed(self, held: _Held) -> FencedError | OutageError | None:
        """Renew once. An outage is borne until the lease may have ended on the server."""
        asked_at_s = anyio.current_time()
        with anyio.move_on_at(held.expires_at_s), suppress(OutageError):
            if not await self._renew([held.key], [held.token, self._lease_ms]):
                return FencedError("the lease was lost: another worker may hold the thread")
            held.expires_at_s = asked_at_s + self._lease_ms / 1000
        if anyio.current_time() >= held.expires_at_s:
            return OutageError("the lease could not be renewed in time")
        return None

    async def _let_go(self, held: _Held) -> None:
        with anyio.move_on_after(self._lease_ms / 1000, shield=True), suppress(OutageError):
            await self._release([held.key], [held.token])
