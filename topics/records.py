"""A Kafka record as plain bytes, before anybody has understood it."""

from dataclasses import dataclass, field

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class RawRecord:
    """One record as the broker gave it: order, duplicates and nulls of its headers are kept.

    `timestamp_ms` is None when the broker does not know it (it sends -1, or 0).
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None

    @property
    def position(self) -> str:
        """`topic/partition/offset`: the id of a record whose producer gave it none."""
        return f"{self.topic}/{self.partition}/{self.offset}"

    @property
    def place(self) -> str:
        """The position, and when the record was written: a topic that is made anew has the same positions for other records."""
        return f"{self.position}@{self.timestamp_ms}"


@dataclass(frozen=True, slots=True)
class OutboundRecord:
    """One record to write. A None value is a tombstone."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = field(default=())
