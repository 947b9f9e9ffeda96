"""A dead letter: the original key, value and headers, byte for byte, plus why it died. Pure.

The six `__dlq.errors.*` names are Kafka's own (KIP-1191); ours are under `sluice.dlq.`. Headers of ours stand behind the
original ones, which are counted, so that a producer's own headers under these names stay its own. They are replaced at each hop,
never appended, and the first origin is never overwritten. Only a record on a replay topic is a replay: elsewhere these headers
are a producer's talk, and must not choose where a replay goes.
"""

from dataclasses import dataclass
from typing import Final
from uuid import uuid5

from topics.catalogue import REPLAY_SUFFIX
from topics.envelope import NAMESPACE
from topics.records import Headers, OutboundRecord, RawRecord

TOPIC: Final = "__dlq.errors.topic"
PARTITION: Final = "__dlq.errors.partition"
OFFSET: Final = "__dlq.errors.offset"
GROUP: Final = "__dlq.errors.group"
DELIVERY_COUNT: Final = "__dlq.errors.delivery.count"
MESSAGE: Final = "__dlq.errors.message"
ID: Final = "sluice.dlq.id"
REASON: Final = "sluice.dlq.reason"
DISPOSITION: Final = "sluice.dlq.disposition"
STAGE: Final = "sluice.dlq.stage"
EXCEPTION: Final = "sluice.dlq.exception.class"
TIMESTAMP: Final = "sluice.dlq.timestamp"
FIRST_FAILED_AT: Final = "sluice.dlq.first.failed.at"
LAST_FAILED_AT: Final = "sluice.dlq.last.failed.at"
TENANT: Final = "sluice.dlq.tenant"
ORIGINAL_HEADERS: Final = "sluice.dlq.original.headers"
REPLAY_ID: Final = "sluice.replay.id"
REPLAY_COUNT: Final = "sluice.replay.count"
REPLAY_ACTOR: Final = "sluice.replay.actor"
REPLAY_EDITED: Final = "sluice.replay.edited"

OURS: Final = ("__dlq.errors.", "sluice.dlq.", "sluice.replay.")
MAX_MESSAGE_BYTES: Final = 1024


@dataclass(frozen=True, slots=True)
class Death:
    """Why a record died. `message` must hold nothing of the payload. Instants are epoch milliseconds."""

    group: str
    code: str
    disposition: str
    stage: str
    message: str
    exception: str
    delivery_count: int
    first_failed_at_ms: int
    last_failed_at_ms: int
    tenant: str = ""


def original_headers(headers: Headers) -> Headers:
    """The headers the producer wrote, in their order, duplicates and nulls kept: of a dead letter, or of its replay."""
    count = header_text(headers, ORIGINAL_HEADERS) or ""
    if count.isascii() and count.isdigit() and len(count) < 7 and int(count) <= len(headers):
        return headers[: int(count)]
    return tuple((name, value) for name, value in headers if not name.startswith(OURS))


def with_ours(original: Headers, ours: dict[str, str]) -> Headers:
    """The producer's headers and, behind them, ours."""
    added = {**ours, ORIGINAL_HEADERS: str(len(original))}
    return original + tuple((name, value.encode()) for name, value in added.items())


def header_text(headers: Headers, name: str) -> str | None:
    """The last value of a header as text; undecodable bytes are shown as replacement characters."""
    found = next((value for key, value in reversed(headers) if key == name and value is not None), None)
    return None if found is None else found.decode(errors="replace")


def dead_letter(record: RawRecord, death: Death, *, topic: str) -> OutboundRecord:
    """Write a record as a dead letter for `topic`. The same record of the same group always gets the same id."""
    carried = {name: header_text(record.headers, name) for name in (TOPIC, PARTITION, OFFSET, TIMESTAMP, FIRST_FAILED_AT)}
    replayed = all(carried[name] for name in (TOPIC, PARTITION, OFFSET)) and f"{carried[TOPIC]}{REPLAY_SUFFIX}" == record.topic
    original = original_headers(record.headers) if replayed else record.headers
    edited = header_text(record.headers, REPLAY_EDITED) if replayed else None
    origin_topic = (carried[TOPIC] if replayed else None) or record.topic
    partition = (carried[PARTITION] if replayed else None) or str(record.partition)
    offset = (carried[OFFSET] if replayed else None) or str(record.offset)
    first_failed_at = (carried[FIRST_FAILED_AT] if replayed else None) or str(death.first_failed_at_ms)
    timestamp = (carried[TIMESTAMP] if replayed else None) or str(record.timestamp_ms or "")
    # A replay says which letter it is of, whatever ids were made of when that was written.
    own_id = (header_text(record.headers, REPLAY_ID) or "").rpartition(":")[0] if replayed else ""
    ours = {
        TOPIC: origin_topic,
        PARTITION: partition,
        OFFSET: offset,
        GROUP: death.group,
        DELIVERY_COUNT: str(death.delivery_count),
        MESSAGE: _cut(death.message),
        ID: own_id
        or dead_letter_id(group=death.group, topic=origin_topic, partition=partition, offset=offset, written_at=timestamp),
        REASON: death.code,
        DISPOSITION: death.disposition,
        STAGE: death.stage,
        EXCEPTION: death.exception,
        TIMESTAMP: timestamp,
        FIRST_FAILED_AT: first_failed_at,
        LAST_FAILED_AT: str(death.last_failed_at_ms),
        TENANT: death.tenant,
        # Always written, so that a producer's header of this name is never taken for ours.
        REPLAY_COUNT: (header_text(record.headers, REPLAY_COUNT) or "") if replayed else "0",
        REPLAY_EDITED: edited or "",
    }
    return OutboundRecord(topic=topic, key=record.key, value=record.value, headers=with_ours(original, ours))


def dead_letter_id(*, group: str, topic: str, partition: str, offset: str, written_at: str) -> str:
    """The same for every death of one record in one group; another one at that position, of a topic made anew, has another."""
    return str(uuid5(NAMESPACE, f"dead-letter\n{group}\n{topic}\n{partition}\n{offset}\n{written_at}"))


def _cut(message: str) -> str:
    return message.encode()[:MAX_MESSAGE_BYTES].decode(errors="ignore")
