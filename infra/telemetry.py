"""Logs: one JSON object a line on standard error."""

import logging
import sys

import structlog


def configure_logging(level: str, *, json: bool = True) -> None:
    """Set up structlog once for the process, and keep the client libraries quiet below warnings."""
    number = logging.getLevelNamesMapping()[level.upper()]
    renderer = structlog.processors.JSONRenderer() if json else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(level=max(number, logging.WARNING), stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
    # A worker's log shows what its clients struggle with; a command's errors reach its user as a sentence anyway.
    quiet = logging.CRITICAL if number >= logging.ERROR else logging.ERROR
    for name in ("aiokafka", "faststream", "httpx", "openai"):
        logging.getLogger(name).setLevel(quiet)
