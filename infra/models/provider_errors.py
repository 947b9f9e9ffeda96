"""What a provider's failures mean for the record: client errors in, `topics/errors.py` out.

No message quotes what the provider said, because a provider quotes the prompt.
"""

import math
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import Any, Final, cast

import openai
from langchain_core.exceptions import ContextOverflowError

from topics.errors import OutageError, RateLimitedError, RejectedError, SluiceError, TimedOutError, UnavailableError

BAD_REPLY: Final = "provider_bad_reply"
NOT_FOUND: Final = "provider_not_found"

_QUOTA_CODES: Final = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
_RATE_CODES: Final = frozenset({"rate_limit_exceeded", "rate_limit_error", "too_many_requests"})
_CONTEXT_CODES: Final = frozenset({"context_length_exceeded", "string_above_max_length"})
# What the clients raise on a body of another shape than they expect.
_BAD_SHAPES: Final = (TypeError, KeyError, IndexError, AttributeError, AssertionError, ValueError)


@contextmanager
def translated() -> Generator[None]:
    """Turn every error of the client into one with a known fate.

    Raises:
        RateLimitedError: 429; with the seconds to wait when the provider named them.
        UnavailableError: 5xx, no connection, or a reply that is no answer (code `provider_bad_reply`).
        TimedOutError: No reply in time.
        OutageError: No quota, no money, a bad key, or an unknown model: the same for every record.
        RejectedError: The request itself is refused: `context_too_long`, `truncated`, `filtered`, `provider_refused_request`.
    """
    try:
        yield
    except SluiceError:
        raise
    except ContextOverflowError as error:
        raise _context_too_long() from error
    except openai.LengthFinishReasonError as error:
        raise RejectedError("the answer was cut at the token limit", code="truncated") from error
    except openai.ContentFilterFinishReasonError as error:
        raise RejectedError("the provider's filter stopped the answer", code="filtered") from error
    except (openai.APITimeoutError, TimeoutError) as error:
        raise _timed_out() from error
    except openai.APIConnectionError as error:
        raise UnavailableError("the provider cannot be reached") from error
    except openai.APIStatusError as error:
        raise _from_status(error.status_code, _codes(error), error.response.headers) from error
    except (openai.APIResponseValidationError, *_BAD_SHAPES) as error:
        raise bad_reply("the provider's reply cannot be read") from error
    except openai.APIError as error:
        # An error inside a stream comes after HTTP 200, so only its code tells what it is.
        raise _from_codes(_codes(error)) or UnavailableError("the provider failed while it answered") from error


def bad_reply(message: str) -> UnavailableError:
    """The error for a reply that arrived and is no answer: another try may bring one."""
    return UnavailableError(message, code=BAD_REPLY)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds until the provider wants to hear from us, or None when it does not say.

    A date counts from the reply's own `Date`, so that two clocks need not agree.
    """
    milliseconds = _seconds(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    stated = headers.get("retry-after")
    seconds = _seconds(stated)
    return seconds if seconds is not None else _seconds_between(headers.get("date"), stated)


def _seconds(text: str | None) -> float | None:
    try:
        seconds = float(text or "")
    except ValueError:
        return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def _seconds_between(sent: str | None, due: str | None) -> float | None:
    try:
        wait_s = (parsedate_to_datetime(due or "") - parsedate_to_datetime(sent or "")).total_seconds()
    except (TypeError, ValueError):
        return None
    return max(wait_s, 0.0)


def _from_status(status: int, codes: frozenset[str], headers: Mapping[str, str]) -> SluiceError:
    if status == 429 and not codes & _QUOTA_CODES:
        return RateLimitedError("the provider limits our rate", retry_after_s=retry_after_s(headers))
    error = _from_codes(codes) or (_BY_STATUS[status]() if status in _BY_STATUS else None)
    if error is not None:
        return error
    if 400 <= status < 500:
        return RejectedError(f"the provider refuses the request (HTTP {status})", code="provider_refused_request")
    return UnavailableError(f"the provider failed (HTTP {status})")


def _from_codes(codes: frozenset[str]) -> SluiceError | None:
    if codes & _QUOTA_CODES:
        return _no_quota()
    if codes & _CONTEXT_CODES:
        return _context_too_long()
    return RateLimitedError("the provider limits our rate") if codes & _RATE_CODES else None


def _no_quota() -> OutageError:
    return OutageError("the provider account has no quota left", code="provider_quota")


def _no_access() -> OutageError:
    return OutageError("the provider refuses our key", code="provider_auth")


def _not_found() -> OutageError:
    return OutageError("the provider knows no such model or path", code=NOT_FOUND)


def _context_too_long() -> RejectedError:
    return RejectedError("the request is longer than the model's context", code="context_too_long")


def _timed_out() -> TimedOutError:
    return TimedOutError("the provider did not answer in time")


def _conflict() -> UnavailableError:
    return UnavailableError("the provider asks for another try")


_BY_STATUS: Final[Mapping[int, Callable[[], SluiceError]]] = {
    401: _no_access,
    402: _no_quota,
    403: _no_access,
    404: _not_found,
    408: _timed_out,
    409: _conflict,
    413: _context_too_long,
    425: _conflict,
}


def _codes(error: openai.APIError) -> frozenset[str]:
    """Providers put the reason in `code` or in `type`, of the body or of its `error`."""
    body: Any = error.body
    if isinstance(body, dict):
        fields = cast("dict[str, Any]", body)
        nested: Any = fields.get("error")
        fields = cast("dict[str, Any]", nested) if isinstance(nested, dict) else fields
        return frozenset(str(fields[name]) for name in ("code", "type") if fields.get(name))
    return frozenset(value for value in (error.code, error.type) if value)
