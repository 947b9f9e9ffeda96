"""A provider's limits for all processes together: one script in Redis grants each call its moment; see `infra.models.pacing`."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, cast

import anyio
from redis.asyncio import Redis

from infra.models.metering import Call, Usage
from infra.models.pacing import GRACE_MS, LONGEST_S, ROUNDING_MS, SOONER, Granted, Later, Pace, Pacer
from infra.redis.client import Script
from infra.redis.keys import Keys
from topics.errors import OutageError, RateLimitedError

ANY: Final = "*"
ANSWER_WITHIN_S: Final = 2.0
PROBE_EVERY_S: Final = 1.0
TENANT_TTL_MS: Final = 600_000  # longer than anything that is reserved or told

# KEYS: the provider's moments, who waits, the tenant's moments.
# ARGV: tenant, tokens, ms a request, ms a token, horizon, longest retry, jitter, ms to hold back first, sooner, grace, rounding,
# ttl, now.
# The server's clock counts, unless a test gives the time. A moment that was granted is written before it is told, so a caller
# that dies or never hears of it loses one call and never adds one.
ADMIT: Final = """
local time = redis.call('TIME')
local now = tonumber(ARGV[13]) or (time[1] * 1000 + time[2] / 1000)
local tokens, request_ms, token_ms = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local horizon, longest, jitter, hold = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local sooner, grace, rounding = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
local function text(number) return string.format('%.3f', number) end

local known = redis.call('HMGET', KEYS[1], 'requests', 'tokens')
local requests_at, tokens_at = tonumber(known[1]), tonumber(known[2]) or 0
if not requests_at then requests_at = now + horizon end
if hold > 0 then requests_at = math.max(requests_at, now + hold) end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', text(now))
local sharers = redis.call('ZCARD', KEYS[2])
if not redis.call('ZSCORE', KEYS[2], ARGV[1]) then sharers = sharers + 1 end
local own = redis.call('HMGET', KEYS[3], 'own', 'back')
local own_at = math.max(now, tonumber(own[1]) or 0)
local slot = math.max(now, requests_at, tokens_at)
local cost = math.max(request_ms, tokens * token_ms) * sharers
local reach = horizon + rounding
if own_at <= now then reach = horizon * 2 + rounding end
local over_share = sharers > 1 and own_at - now > horizon

if slot > now and (slot - now > reach or over_share) then
  local back_at = math.max(now, tonumber(own[2]) or 0) + cost * sooner
  local retry = back_at - now
  if retry <= longest then
    redis.call('HSET', KEYS[3], 'back', text(back_at))
    redis.call('PEXPIRE', KEYS[3], ARGV[12])
  else
    retry = longest * (0.5 + jitter / 2)
  end
  redis.call('ZADD', KEYS[2], 'GT', text(now + retry + grace), ARGV[1])
  if hold > 0 or not known[1] then redis.call('HSET', KEYS[1], 'requests', text(requests_at)) end
  return {'later', text(retry)}
end
redis.call('HSET', KEYS[1], 'requests', text(slot + request_ms), 'tokens', text(slot + tokens * token_ms))
redis.call('HSET', KEYS[3], 'own', text(math.min(own_at, now + 2 * horizon) + cost))
redis.call('PEXPIRE', KEYS[3], ARGV[12])
return {'granted', text(slot - now)}
"""
# KEYS: the provider's moments. ARGV: tokens more than estimated, ms a token.
SETTLE: Final = """
local at = tonumber(redis.call('HGET', KEYS[1], 'tokens'))
if not at then return 0 end
redis.call('HSET', KEYS[1], 'tokens', string.format('%.3f', at + tonumber(ARGV[1]) * tonumber(ARGV[2])))
return 1
"""


class Clock(Protocol):
    """Time that never goes back."""

    def monotonic_s(self) -> float:
        """Seconds, for measuring spans."""
        ...


@dataclass(slots=True)
class _Local:
    """This process's own share, for as long as Redis does not answer."""

    pacer: Pacer
    until_s: float = 0.0  # Redis is not asked before
    used_until_s: float | None = None  # the last moment it granted; None when it granted none since Redis answered


@dataclass(slots=True)
class RedisRateLimit:
    """A `Meter` that keeps requests and tokens of all processes within each provider's limits, fairly to tenants.

    When Redis does not answer, each process keeps to its share of the limit, one in `processes`, until Redis answers again.

    Args:
        paces: Provider -> pace; `*` stands for all others. A provider with none of both is not limited.
        processes: How many processes there are at most.
    """

    client: Redis
    paces: Mapping[str, Pace]
    processes: int
    clock: Clock
    keys: Keys = field(default_factory=Keys)
    _admit: Script = field(init=False)
    _settle: Script = field(init=False)
    _locals: dict[str, _Local] = field(default_factory=dict[str, _Local], init=False)

    def __post_init__(self) -> None:
        """Register the scripts; nothing is sent yet."""
        self._admit = Script(self.client, ADMIT)
        self._settle = Script(self.client, SETTLE)

    async def admit(self, call: Call) -> None:
        """Wait for the moment of a call, at most about two horizons.

        Raises:
            RateLimitedError: Too many are before it; `retry_after_s` is its place among those that come back. Nothing was counted.
        """
        pace = self.paces.get(call.provider) or self.paces.get(ANY)
        if pace is None:
            return
        while True:
            asked_s = self.clock.monotonic_s()
            answer = await self._asked(call, pace)
            if isinstance(answer, Later):
                raise RateLimitedError("the provider's limit is used up", retry_after_s=answer.retry_ms / 1000)
            await anyio.sleep(answer.wait_ms / 1000)
            # A process that was stopped or starved would send all its calls at once: each late one asks for another moment.
            if (self.clock.monotonic_s() - asked_s) * 1000 <= answer.wait_ms + pace.late_ms:
                return

    async def settle(self, call: Call, usage: Usage | None) -> None:
        """Correct the estimate. What is not known stays estimated; so does what Redis cannot be told."""
        pace = self.paces.get(call.provider) or self.paces.get(ANY)
        if pace is None or usage is None or not pace.token_ms:
            return
        more = usage.input_tokens + usage.output_tokens - call.tokens
        local = self._local(call.provider, pace)
        if local.used_until_s is not None:
            local.pacer.settle(more)
            return
        try:
            with anyio.fail_after(ANSWER_WITHIN_S):
                await self._settle([self.keys.pace(call.provider)], [more, repr(pace.token_ms)])
        except (OutageError, TimeoutError):
            local.until_s = self.clock.monotonic_s() + PROBE_EVERY_S

    async def _asked(self, call: Call, pace: Pace) -> Granted | Later:
        local = self._local(call.provider, pace)
        if self.clock.monotonic_s() >= local.until_s:
            try:
                with anyio.fail_after(ANSWER_WITHIN_S):
                    return await self._shared(call, pace, local)
            except (OutageError, TimeoutError):
                local.until_s = self.clock.monotonic_s() + PROBE_EVERY_S
        now_s = self.clock.monotonic_s()
        if local.used_until_s is None:
            # What the server granted this process and others is still to be used.
            local.pacer.hold((now_s + 2 * pace.horizon_ms / 1000) * 1000)
        answer = local.pacer.ask(call.tenant, call.tokens, now_s * 1000, jitter=_jitter())
        wait_s = answer.wait_ms / 1000 if isinstance(answer, Granted) else 0.0
        local.used_until_s = max(local.used_until_s or 0.0, now_s + wait_s)
        return answer

    async def _shared(self, call: Call, pace: Pace, local: _Local) -> Granted | Later:
        # Each process that comes back holds the shared pace until its own grants, and about those of others, are used.
        hold_ms = 0.0 if local.used_until_s is None else 2 * pace.horizon_ms
        keys = [self.keys.pace(call.provider), self.keys.pace_waiting(call.provider), self.keys.pace_of(call.provider, call.tenant)]
        numbers = (
            call.tokens,
            pace.request_ms,
            pace.token_ms,
            pace.horizon_ms,
            LONGEST_S * 1000,
            _jitter(),
            hold_ms,
            SOONER,
            GRACE_MS,
            ROUNDING_MS,
        )
        answer = await self._admit(keys, [call.tenant, *map(repr, numbers), TENANT_TTL_MS])
        local.used_until_s = None
        return read_answer(answer)

    def _local(self, provider: str, pace: Pace) -> _Local:
        return self._locals.setdefault(provider, _Local(Pacer(pace.slowed(self.processes))))


def read_answer(answer: Any) -> Granted | Later:
    """What the script says."""
    kind, number = cast("tuple[bytes, bytes]", answer)
    return Granted(float(number)) if kind == b"granted" else Later(float(number))


def _jitter() -> float:
    return random.random()  # noqa: S311 - spreads those that come back; no secret
