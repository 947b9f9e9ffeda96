"""(error, failures so far, policy) -> what happens to the record next. Pure."""

from dataclasses import dataclass
from typing import Final

from topics.errors import (
    FencedError,
    HaltError,
    LeaseBusyError,
    OutageError,
    RateLimitedError,
    RejectedError,
    RetryableError,
    TooEarlyError,
)

MAX_RETRY_AFTER_S: Final = 3600.0
MAX_SPREAD_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Full jitter between 0 and `base_s * 2**failures`, at most `cap_s`.

    `max_failures` bounds expected failures, `max_unexpected` those that are bugs of ours. `rate_wait_s` is for a provider that
    limits our rate and names no time; one that limited a record for `max_limited_s` will never take it.
    Source: AWS builders' library, timeouts, retries and backoff with jitter.
    """

    base_s: float = 0.5
    cap_s: float = 60.0
    max_failures: int = 8
    max_unexpected: int = 3
    lease_wait_s: float = 0.2
    rate_wait_s: float = 5.0
    max_limited_s: float = 86_400.0
    outage_wait_s: float = 5.0
    crash_limit: int = 5


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """Its lane waits `delay_s`. `spends_attempt` is False when nothing was tried."""

    delay_s: float
    spends_attempt: bool = True


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """It goes to the dead letters. `code` is stable; `disposition` says what kind of end it is."""

    code: str
    disposition: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Intake pauses for everybody for `delay_s`; the record waits and spends nothing."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class Halt:
    """Stop the worker; commit nothing more."""


Step = RetryAfter | DeadLetter | Pause | Halt


def next_step(error: BaseException, *, failures: int, policy: RetryPolicy, jitter: float, limited_s: float = 0.0) -> Step:
    """Decide what happens after a failed start.

    Args:
        failures: Failed starts before this one that spent an attempt.
        jitter: Uniform in [0, 1).
        limited_s: Seconds since a provider first limited this record's rate, as far as this process knows.
    """
    if isinstance(error, HaltError):
        return Halt()
    if isinstance(error, OutageError):
        return Pause(policy.outage_wait_s * (0.5 + jitter))
    if isinstance(error, LeaseBusyError | FencedError):
        return RetryAfter(policy.lease_wait_s * (0.5 + jitter), spends_attempt=False)
    if isinstance(error, RateLimitedError):
        if limited_s >= policy.max_limited_s and not isinstance(error, TooEarlyError):
            return DeadLetter(error.reason_code, "exhausted")
        return _wait_for_rate(error, policy, jitter)
    if isinstance(error, RejectedError):
        return DeadLetter(error.reason_code, "poison")
    return _bounded(error, failures=failures, policy=policy, jitter=jitter)


def _wait_for_rate(error: RateLimitedError, policy: RetryPolicy, jitter: float) -> RetryAfter:
    """Wait for as long as the provider says, and as often: it limits our pace, and the record is no worse for it.

    The jitter comes behind its word, and grows with it, so that those that wait do not come back all at once and are sent
    away again.
    """
    if error.retry_after_s is None:
        return RetryAfter(policy.rate_wait_s * (0.5 + jitter), spends_attempt=False)
    named_s = min(max(error.retry_after_s, policy.base_s), MAX_RETRY_AFTER_S)
    spread_s = policy.base_s if isinstance(error, TooEarlyError) else min(max(named_s / 3, policy.base_s), MAX_SPREAD_S)
    return RetryAfter(named_s + spread_s * jitter, spends_attempt=False)


def _bounded(error: BaseException, *, failures: int, policy: RetryPolicy, jitter: float) -> Step:
    expected = isinstance(error, RetryableError)
    if failures + 1 >= (policy.max_failures if expected else policy.max_unexpected):
        return DeadLetter(error.reason_code if expected else "unexpected", "exhausted")
    return RetryAfter(min(policy.cap_s, policy.base_s * 2**failures) * jitter)
