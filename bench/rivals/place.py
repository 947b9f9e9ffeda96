"""Where a measured process finds its records, and the engines there are."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Final

from bench.rivals.watch import Watch


@dataclass(frozen=True, slots=True)
class Place:
    """One topic on one broker, and what an engine may lean on. Every run has a group of its own, so it reads from the beginning."""

    bootstrap: str
    topic: str
    group: str
    slots: int
    redis_url: str
    cassandra: str


Run = Callable[[Place, Watch], Awaitable[None]]

# An engine runs until it is killed. Each is a module of its own: a process imports only the one that it measures.
ENGINES: Final = {
    "Sluice, claims in Redis": "bench.rivals.ours:with_claims",
    "Sluice, no claims": "bench.rivals.ours:without_claims",
    "FastStream subscriber": "bench.rivals.faststream_alone:one_by_one",
    "FastStream max_workers": "bench.rivals.faststream_alone:pool",
    "faststream-concurrent-aiokafka": "bench.rivals.faststream_concurrent:run",
    "prosody-events": "bench.rivals.prosody_events:run",
    "aiokafka loop, nothing else": "bench.rivals.client_loop:run",
}


def load(engine: str) -> Run:
    """The function of an engine."""
    module, _, name = ENGINES[engine].partition(":")
    return getattr(import_module(module), name)
