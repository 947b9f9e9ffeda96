"""Logs: one JSON object a line on standard error, without personal data or secrets (P11).

What is logged on purpose is ids, codes and counts. What may slip through (an exception of a client quotes its input, a library
logs a request) is caught here: texts of exceptions that are not ours stay out, and everything else is redacted.
"""

import json
import logging
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from traceback import format_tb
from types import TracebackType
from typing import Any, Final, cast

import structlog

from infra.redaction import Redactor, guarded, redacted_value
from topics.errors import SluiceError

WITHHELD: Final = "(its text is left out)"
MAX_FRAMES: Final = 40
MAX_CHAIN: Final = 10


def configure_logging(level: str, *, redactor: Redactor | None = None) -> None:
    """Set up structlog and the standard library's logging once for the process, and keep the client libraries quiet below warnings.

    What ends the process is told in the same way: Python's own traceback would quote whatever the exception does.
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    redact = guarded(redactor) if redactor else guarded()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.ExceptionRenderer(lambda exc_info: safe_traceback(exc_info[1])),
            _Redacted(redact),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(SafeFormatter(redact))
    logging.basicConfig(level=max(number, logging.WARNING), handlers=[handler])
    # A worker's log shows what its clients struggle with; a command's errors reach its user as a sentence anyway.
    quiet = logging.CRITICAL if number >= logging.ERROR else logging.ERROR
    for name in ("aiokafka", "faststream", "httpx", "openai", "opentelemetry"):
        logging.getLogger(name).setLevel(quiet)
    logging.captureWarnings(capture=True)
    sys.excepthook = _Last(redact)


class SafeFormatter(logging.Formatter):
    """What the standard library's logging is given, of ours and of libraries: redacted, and without the texts of exceptions."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__("%(message)s")
        self._redact = redactor

    def format(self, record: logging.LogRecord) -> str:
        """One JSON object; `event` has the frames too. The record keeps no text of an exception for the next handler."""
        record.exc_text = None
        event = super().format(record)
        record.exc_text = None
        return json.dumps(
            {
                "event": self._redact(event),
                "logger": record.name,
                "level": record.levelname.lower(),
                "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z"),
            }
        )

    def formatException(self, ei: Any) -> str:  # noqa: N802 -- the name in the standard library
        """The frames, and what our own errors say."""
        return safe_traceback(ei[1])


def safe_traceback(error: BaseException | None) -> str:
    """Where it happened and of which type it is, causes first. What it says is told only of our own errors, which quote nothing."""
    return "\n".join(_told(error)) if error else ""


def _told(error: BaseException, *, depth: int = 0) -> Iterator[str]:
    if depth > MAX_CHAIN:
        yield "..."
        return
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is not None:
        yield from _told(before, depth=depth + 1)
        yield "which led to:" if error.__cause__ else "while that was handled:"
    yield from format_frames(error.__traceback__)
    text = str(error) if isinstance(error, SluiceError) else WITHHELD
    yield f"{type(error).__module__}.{type(error).__qualname__}: {text}"
    if isinstance(error, BaseExceptionGroup):
        inside = cast("BaseExceptionGroup[BaseException]", error).exceptions
        for number, one in enumerate(inside[:MAX_CHAIN], start=1):
            yield f"  {number} of {len(inside)}:"
            yield from (f"  {line}" for line in _told(one, depth=depth + 1))


def format_frames(found: TracebackType | None) -> Iterator[str]:
    """Files, lines and code; the values of variables are never part of it."""
    for frame in format_tb(found, limit=-MAX_FRAMES):
        yield frame.rstrip("\n")


class _Redacted:
    """Redacts the values of an event; names are ours."""

    def __init__(self, redactor: Redactor) -> None:
        self._redact = redactor

    def __call__(self, _logger: Any, _method: str, event: Any) -> Any:
        return {name: redacted_value(value, self._redact) if name != "timestamp" else value for name, value in event.items()}


class _Last:
    """Tells of an exception that nobody caught."""

    def __init__(self, redactor: Redactor) -> None:
        self._redact = redactor

    def __call__(self, kind: type[BaseException], error: BaseException, _traceback: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            return
        sys.stderr.write(self._redact(safe_traceback(error)) + "\n")
