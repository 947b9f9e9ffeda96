"""Errors, named by what happens to the record next.

The runtime reads the type, never the text. `code` is stable and travels in dead-letter headers; the message is for people
and never quotes a payload.
"""

from typing import ClassVar, Literal


class SluiceError(Exception):
    """Base of every error with a known fate."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str = "", *, code: str | None = None) -> None:
        super().__init__(message or code or self.code)
        self.reason_code: str = code or self.code


class RetryableError(SluiceError):
    """Its lane waits, then the record runs again. An attempt is spent."""

    code = "retryable"


class RateLimitedError(RetryableError):
    """A provider asked us to wait `retry_after_s` seconds; None when it did not say how long."""

    code = "rate_limited"

    def __init__(self, message: str = "", *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class TooEarlyError(RateLimitedError):
    """A moment has not come by this worker's clock. Nothing was changed; `retry_after_s` is what is left."""

    code = "too_early"


class UnavailableError(RetryableError):
    """A dependency failed for this call; others may succeed."""

    code = "unavailable"


class TimedOutError(RetryableError):
    """No answer within the bound. What the other side did is unknown."""

    code = "timed_out"


class LeaseBusyError(RetryableError):
    """Another worker holds the thread. Waiting for it spends no attempt."""

    code = "lease_busy"


class FencedError(RetryableError):
    """Another worker became the thread's writer. Nothing was written; the record runs again and spends no attempt."""

    code = "fenced"


class RejectedError(SluiceError):
    """The record can never succeed: dead letter now, with the code."""

    code = "rejected"


class MalformedError(RejectedError):
    """The bytes are not an event of this topic."""

    code = "malformed"


class TooLargeError(RejectedError):
    """It is larger than an event may be. Nothing was sent."""

    code = "too_large"


class UnknownVersionError(RejectedError):
    """The payload is newer than this build. Replayable after an upgrade."""

    code = "unknown_version"


class CrashLoopError(RejectedError):
    """The record's worker died each time it ran."""

    code = "crash_loop"


class BudgetExceededError(RejectedError):
    """The tenant's budget is used up, or its usage is unknown."""

    code = "budget_exceeded"


class SupersededError(SluiceError):
    """What is there is newer and stays as it is. Not the fate of a record: whoever handles it has nothing more to do."""

    code = "superseded"


class ForgedError(SluiceError):
    """Nobody with the right to it can be shown to have said this. Not the fate of a record: its sender is answered.

    `code` is `forbidden` or `mismatch`, and `reason` a stable word within it.
    """

    code = "forbidden"

    def __init__(self, reason: str, message: str = "", *, code: Literal["forbidden", "mismatch"] = "forbidden") -> None:
        super().__init__(message or reason, code=code)
        self.answer_code: Literal["forbidden", "mismatch"] = code
        self.reason = reason


class OutageError(SluiceError):
    """A dependency is down for everybody: intake pauses, no attempt is spent, nothing is dead-lettered."""

    code = "outage"


class HaltError(SluiceError):
    """Stop the worker loudly and commit nothing."""

    code = "halt"


class ConfigError(HaltError):
    """A setting or a server is wrong. The message says what to change."""

    code = "config"
