import json
import logging
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from infra.redaction import FAILED
from infra.telemetry import SafeFormatter, safe_traceback
from tests.infra.test_redaction import CASE_40
from topics.errors import RejectedError

ROOT = Path(__file__).parents[2]
SECRET = "; ".join(CASE_40)
PREAMBLE = """
import logging, structlog, sys, warnings
from pydantic import BaseModel
from infra.telemetry import configure_logging
from topics.errors import OutageError, RejectedError

class Ticket(BaseModel):
    body: int

SECRET = sys.argv[1]
def fail():
    Ticket.model_validate({"body": SECRET})
log = structlog.get_logger("sluice.test")
"""


def logged(code: str, *, setup: str = 'configure_logging("info")') -> str:
    """What a process of its own writes to both of its ends."""
    command = [sys.executable, "-c", PREAMBLE + setup + "\n" + code, SECRET]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "code",
    [
        "log.warning('record_failed', why=SECRET, facts={'a': [SECRET]}, **{'id': 7})",
        "try:\n    fail()\nexcept ValueError as error:\n    log.error('record_failed', exc_info=error)",
        "try:\n    fail()\nexcept ValueError:\n    logging.getLogger('flows.agent').exception('a bug: %s', SECRET)",
        "try:\n    fail()\nexcept ValueError as error:\n    raise OutageError('down') from error",
        "fail()",
        "raise ExceptionGroup(SECRET, [ValueError(SECRET), ExceptionGroup('x', [KeyError(SECRET)])])",
        "warnings.warn(SECRET)",
        "logging.getLogger('asyncio').error(SECRET, exc_info=ValueError(SECRET))",
    ],
)
def test_no_log_line_of_any_kind_holds_what_an_exception_or_a_value_quotes(code):
    found = logged(code)
    assert found
    assert [one for one in (*CASE_40, "sk-test-123", "jane.roe") if one in found] == []


def test_a_log_still_says_where_a_bug_happened_and_of_which_type_it_was():
    found = json.loads(logged("try:\n    fail()\nexcept ValueError as error:\n    log.error('record_failed', exc_info=error)"))
    assert found["event"] == "record_failed"
    assert "in fail" in found["exception"]
    assert "ValidationError: (its text is left out)" in found["exception"]


def test_lines_of_the_standard_library_are_json_too_so_that_a_log_has_one_form():
    code = (
        "try:\n    fail()\nexcept ValueError:\n    logging.getLogger('flows.agent').exception('a call was rejected: %s', 'budget')"
    )
    found = json.loads(logged(code))
    assert (found["logger"], found["level"]) == ("flows.agent", "error")
    assert found["event"].startswith("a call was rejected: budget\n")
    assert "ValidationError: (its text is left out)" in found["event"]
    assert found["timestamp"].endswith("Z")


def test_what_our_own_errors_say_is_told_and_so_is_what_led_to_them():
    error = RejectedError("the model's answer does not fit")
    error.__cause__ = KeyError(SECRET)
    told = safe_traceback(error)
    assert told.index("builtins.KeyError: (its text is left out)") < told.index("which led to:")
    assert told.endswith("topics.errors.RejectedError: the model's answer does not fit")


def test_a_redactor_that_raises_leaves_a_marker_and_nothing_else():
    broken = "def broken(text):\n    raise RuntimeError(text)\nconfigure_logging('info', redactor=broken)"
    found = json.loads(logged("log.warning('record_failed', why=SECRET, attempt=3)", setup=broken))
    assert found["why"] == FAILED
    assert found["attempt"] == 3


def test_a_chain_of_causes_without_an_end_is_cut():
    errors = [ValueError(str(number)) for number in range(50)]
    for one, cause in pairwise(errors):
        one.__cause__ = cause
    errors[-1].__cause__ = errors[0]
    assert len(safe_traceback(errors[0]).splitlines()) < 40


def test_a_formatter_keeps_no_text_of_an_exception_for_the_next_handler():
    error = ValueError(SECRET)
    record = logging.LogRecord("x", logging.ERROR, "", 1, "failed", None, (ValueError, error, None))
    assert "left out" in SafeFormatter(lambda text: text).format(record)
    assert record.exc_text is None
