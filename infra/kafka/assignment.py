"""What the runtime holds of one assigned partition, and of one record on its way through. Pure."""

from dataclasses import dataclass, field
from typing import Any
from uuid import uuid5

from infra.claims import Claim
from infra.kafka.watermark import Watermark
from topics.envelope import NAMESPACE, Event
from topics.errors import RejectedError
from topics.events import Payload
from topics.records import RawRecord


@dataclass(eq=False, slots=True)
class Assignment:
    """One partition in one assignment. A later assignment of the same partition is another object.

    `live` ends with the assignment: work of an ended one neither publishes nor commits.
    """

    topic: str
    partition: int
    epoch: int
    watermark: Watermark = field(default_factory=Watermark)
    live: bool = True
    draining: bool = False
    buffered: int = 0
    buffered_bytes: int = 0
    committed: int | None = None
    admitted_at_s: dict[int, float] = field(default_factory=dict[int, float])  # of unfinished offsets, the oldest first

    def position_to_commit(self) -> int | None:
        """A position that the broker does not know yet, or None."""
        position = self.watermark.next_position()
        return None if position == self.committed else position


@dataclass(eq=False, slots=True)
class Work:
    """One record on its way: understood (`event`) or not (`refusal`)."""

    record: RawRecord
    assignment: Assignment
    event: Event[Payload] | None
    refusal: RejectedError | None = None
    claim: Claim = field(default_factory=Claim)
    starts: int = 0
    failures: int = 0
    owed: int = 0  # starts that were no deaths and could not be taken back
    first_failed_at_ms: int | None = None
    limited_since_s: float | None = None  # by the monotonic clock: another worker counts anew
    scope: Any = None
    claim_id: str = field(init=False)

    def __post_init__(self) -> None:
        """Name the record for the inbox, once; one that was not understood is known by its place."""
        self.claim_id = self.event.claim_id if self.event else str(uuid5(NAMESPACE, self.record.place))

    @property
    def lane(self) -> str:
        """Records of one lane run one after another."""
        return self.event.key if self.event else self.record.position

    @property
    def tenant(self) -> str:
        """Who shares slots fairly with whom; nobody's records count as one tenant."""
        return self.event.tenant if self.event else ""

    @property
    def size_bytes(self) -> int:
        """What it holds in memory, roughly."""
        record = self.record
        headers = sum(len(name) + len(value or b"") for name, value in record.headers)
        return len(record.value or b"") + len(record.key or b"") + headers + 200
