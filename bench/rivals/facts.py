"""What a figure does not show: order, what a kill costs, what becomes of a record whose handler raises. By their sources."""

from typing import Final

_FASTSTREAM: Final = "faststream 0.7.8: subscriber/config.py, usecase.py"
_OURS: Final = "tests/infra/kafka/test_runtime.py, tests/stories/test_kills.py"

# Engine -> order per key, killed, a handler raises, source.
FACTS: Final[dict[str, tuple[str, str, str, str]]] = {
    "Sluice, claims in Redis": ("kept", "in flight runs again", "retried, then dead letter", _OURS),
    "Sluice, no claims": ("kept", "above the watermark runs again", "retried, then dead letter", _OURS),
    "FastStream subscriber": ("kept, one at a time", "loses what is in hand", "lost", _FASTSTREAM),
    "FastStream max_workers": ("none", "loses what is in hand", "lost", _FASTSTREAM),
    "faststream-concurrent-aiokafka": ("none", "above the watermark runs again", "lost", "0.7.2: README, ADR-0002"),
    "prosody-events": ("kept", "in flight runs again", "retried for ever", "0.6.1: README, CONFIGURATION.md"),
}
