"""Which handler gets a topic's records, and what a handler is."""

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from topics.catalogue import TopicSpec
from topics.envelope import Event
from topics.events import Payload

# A handler yields payloads; the runtime publishes them, waits for the acknowledgements, then lets the offset count. A handler
# goes on behind a yield only once the broker has the payload, unless that is a piece of a stream: what it then writes elsewhere
# can rest on it, whatever crashes.
Handler = Callable[[Event[Any]], AsyncGenerator[Payload]]

# Told of a record as it comes, before those ahead of it in its lane are handled. It may come to nothing or be missed, so it is a
# hint and never an effect: it neither waits nor writes.
Arrival = Callable[[Event[Any]], None]

# A batch handler yields, in any order, (event, payload) to publish and (event, error) where one of them failed, for each event at
# most once: that is the event's end, whatever the rest of the batch still does. An event that it does not tell of ends with the
# batch; nothing is promised of what it does behind its last result.
BatchHandler = Callable[[Sequence[Event[Any]]], AsyncGenerator[tuple[Event[Any], Payload | Exception]]]


@dataclass(frozen=True, slots=True)
class Route:
    """One input topic (and its replay topic) and who handles it. Exactly one of `handler` and `batch_handler` is set."""

    spec: TopicSpec
    handler: Handler | None = None
    batch_handler: BatchHandler | None = None
    batch_size: int = 32
    batch_wait_s: float = 0.1
    on_arrival: Arrival | None = None

    def __post_init__(self) -> None:
        """Refuse a route that nobody or two handlers serve."""
        if (self.handler is None) == (self.batch_handler is None):
            raise ValueError(f"route {self.spec.name}: give a handler or a batch handler")
