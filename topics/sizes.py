"""How large what we write may be, so that a broker with its usual limit (1,048,588 bytes) takes every event of ours. Pure.

A bound that is met where text comes in ends a query with a typed answer. One that is met at the broker costs the record that
was being handled, and perhaps those behind it. So each part has its own, and together they fit.
"""

import json
from typing import Any, Final

MAX_EVENT_BYTES: Final = 1_000_000  # of a value; key, headers and framing have the rest
MAX_ANSWER_BYTES: Final = 800_000  # of an answer's text, as JSON; citations have the rest
MAX_DELTA_CHARS: Final = 100_000  # of one piece of a stream; a character is six bytes at most, as JSON
MAX_ARGUMENTS_BYTES: Final = 65_536  # of a tool call; a request carries those of earlier decisions too
MAX_DECISION_MESSAGE_BYTES: Final = 65_536  # of what a person says with a decision, as JSON: its answer says it again
MAX_NAME_BYTES: Final = 512  # of a person who decides, as JSON; a verdict names everybody who agreed
MAX_EARLIER_DECISIONS: Final = 5
MAX_REASON_CHARS: Final = 4_000


def json_bytes(value: Any) -> int:
    """The size of a JSON value on the wire."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
