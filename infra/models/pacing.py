"""When a provider may be called next, shared fairly among tenants. Pure: the time is given.

Calls are spaced evenly (GCRA) instead of counted in a window: a provider may count by a fixed window, a sliding one or a bucket,
and an even pace is within all of them. A call reserves the next free moment if that is near, else it is told when to come back.

Fairness is max-min: a moment that is free now goes to whoever asks, so nothing is wasted. While others wait, a tenant reserves
moments ahead at no more than its share of the pace; and who has nothing reserved may reserve twice as far ahead as the rest, so
that a tenant with few calls gets in before one with many.

The Lua script of `infra.redis.rate_limit` decides the same, for all processes at once. Source: docs/decisions/0019-limits.md
"""

from dataclasses import dataclass, field
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

MARGIN: Final = 0.03
"""The part of a limit that is left unused. Calls arrive earlier or later than they were sent: 3 % of a minute is 1.8 s of that."""
LONGEST_S: Final = 60.0
SOONER: Final = 0.9  # who is sent away is called back a little early: a free moment that nobody asks for is lost
GRACE_MS: Final = 1_000.0
ROUNDING_MS: Final = 0.01
"""A moment at the very end of the reach is within it, however binary fractions round: the first after a hold stands just there."""


@dataclass(frozen=True, slots=True)
class Pace:
    """A provider's limit as distances in milliseconds. 0: not limited.

    `horizon_ms`: how far ahead a call may reserve, and so about how long it waits at most; twice that for one's first.
    """

    request_ms: float
    token_ms: float
    horizon_ms: float
    late_ms: float

    def cost_ms(self, tokens: int) -> float:
        """What a call of so many tokens takes of the pace."""
        return max(self.request_ms, tokens * self.token_ms)

    def slowed(self, times: float) -> "Pace":
        """The share of one in so many."""
        return Pace(self.request_ms * times, self.token_ms * times, self.horizon_ms, self.late_ms)


def pace_of(
    requests: float | None, tokens: float | None, *, window_s: float = 60.0, horizon_s: float = 1.0, margin: float = MARGIN
) -> Pace:
    """The pace that keeps within so many requests and tokens in every window."""

    def distance_ms(limit: float | None) -> float:
        return window_s * 1000 / (limit * (1 - margin)) if limit else 0.0

    # What leaves later than it was told to uses up the margin, and half of it belongs to the network.
    return Pace(distance_ms(requests), distance_ms(tokens), horizon_s * 1000, window_s * 1000 * margin / 2)


class ProviderLimit(BaseModel):
    """What a provider allows in every window of so many seconds; None: any number. The shape is that of the setting."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    requests: int | None = Field(default=None, ge=1)
    tokens: int | None = Field(default=None, ge=1)
    window_s: float = Field(default=60.0, gt=0)
    wait_s: float = Field(default=1.0, gt=0, le=10)

    def pace(self) -> Pace:
        """The pace that keeps it."""
        return pace_of(self.requests, self.tokens, window_s=self.window_s, horizon_s=self.wait_s)


@dataclass(frozen=True, slots=True)
class Granted:
    """Call after `wait_ms`: that moment is reserved."""

    wait_ms: float


@dataclass(frozen=True, slots=True)
class Later:
    """Ask again after `retry_ms`. Nothing is reserved."""

    retry_ms: float


@dataclass(slots=True)
class _Tenant:
    own_ms: float = 0.0  # up to when its own share is reserved
    back_ms: float = 0.0  # when the last one that was sent away is to come back
    waits_until_ms: float = 0.0


@dataclass(slots=True)
class Pacer:
    """The moments of one provider."""

    pace: Pace
    requests_ms: float | None = None
    tokens_ms: float = 0.0
    _tenants: dict[str, _Tenant] = field(default_factory=dict[str, _Tenant])

    def ask(self, tenant: str, tokens: int, now_ms: float, *, jitter: float = 0.0) -> Granted | Later:
        """Reserve the next moment for a call, or say when to ask again.

        Args:
            tokens: An estimate of input and output together.
            jitter: Uniform in [0, 1), for those that are sent away for the longest time.
        """
        pace = self.pace
        if self.requests_ms is None:
            # Who forgot what it had granted waits until the last of it is gone.
            self.requests_ms = now_ms + pace.horizon_ms
        sharers = 1 + sum(one.waits_until_ms > now_ms for name, one in self._tenants.items() if name != tenant)
        own = self._tenants.setdefault(tenant, _Tenant())
        slot_ms = max(now_ms, self.requests_ms, self.tokens_ms)
        own_ms = max(now_ms, own.own_ms)
        cost_ms = pace.cost_ms(tokens) * sharers
        reach_ms = pace.horizon_ms * (2 if own_ms <= now_ms else 1) + ROUNDING_MS
        over_share = sharers > 1 and own_ms - now_ms > pace.horizon_ms
        if slot_ms > now_ms and (slot_ms - now_ms > reach_ms or over_share):
            return self._later(own, cost_ms, now_ms, jitter)
        self.requests_ms = slot_ms + pace.request_ms
        self.tokens_ms = slot_ms + tokens * pace.token_ms
        own.own_ms = min(own_ms, now_ms + 2 * pace.horizon_ms) + cost_ms
        return Granted(slot_ms - now_ms)

    def settle(self, tokens: int) -> None:
        """A call used so many tokens more (or fewer, below 0) than was estimated."""
        self.tokens_ms += tokens * self.pace.token_ms

    def hold(self, until_ms: float) -> None:
        """Grant nothing before `until_ms`."""
        self.requests_ms = max(self.requests_ms or 0.0, until_ms)

    @staticmethod
    def _later(own: _Tenant, cost_ms: float, now_ms: float, jitter: float) -> Later:
        """Those that are sent away come back one after the other, as if they stood in a queue."""
        back_ms = max(own.back_ms, now_ms) + cost_ms * SOONER
        longest_ms = LONGEST_S * 1000
        if back_ms - now_ms <= longest_ms:
            own.back_ms = back_ms
            retry_ms = back_ms - now_ms
        else:
            retry_ms = longest_ms * (0.5 + jitter / 2)
        own.waits_until_ms = max(own.waits_until_ms, now_ms + retry_ms + GRACE_MS)
        return Later(retry_ms)
