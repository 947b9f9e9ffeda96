"""CloudEvents 1.0 in and out. Binary mode is written; binary and structured modes are read.

Source: CloudEvents Kafka protocol binding 1.0.2; extension names from the CloudEvents registry, `tenant` is ours.
"""

import re
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Generic, TypeVar
from uuid import UUID, uuid5

from cloudevents.core.bindings import kafka as binding
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from pydantic import ValidationError

from topics import upcasts
from topics.attributes import Attributes, read_attributes
from topics.catalogue import REPLAY_SUFFIX, Catalogue, TopicSpec, spec_for
from topics.errors import MalformedError, TooLargeError, UnknownVersionError
from topics.events import Payload
from topics.origin import Origin
from topics.records import OutboundRecord, RawRecord
from topics.sizes import MAX_EVENT_BYTES
from topics.text import clean_json, clean_text

NAMESPACE: Final = UUID("8f0f4f5e-6f0e-5f0c-9b57-5a9f6d1c2e33")
SCHEMA_PREFIX: Final = "urn:sluice:schema:"
REPLAY_ID_HEADER: Final = "sluice.replay.id"
WRITTEN_HEADER: Final = "sluice.dlq.timestamp"
ORIGIN_HEADERS: Final = ("__dlq.errors.topic", "__dlq.errors.partition", "__dlq.errors.offset")

_FORMAT: Final = JSONFormat()
_TENANT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_SCHEMA_VERSION: Final = re.compile(r":([0-9]{1,6})")
_INSTANT: Final = re.compile("[0-9]{1,19}")

PayloadT_co = TypeVar("PayloadT_co", bound=Payload, covariant=True)


@dataclass(frozen=True, slots=True)
class Event(Generic[PayloadT_co]):
    """A record that was understood.

    `key` is `tenant/id` from the payload, so that records without a Kafka key keep their order too. `time` is the producer's
    word, in UTC, or None. `attempt` counts starts of this record, from 1, and is set by the runtime.
    """

    id: str
    source: str
    tenant: str
    key: str
    payload: PayloadT_co
    record: RawRecord
    time: datetime | None = None
    correlation_id: str | None = None
    traceparent: str | None = None
    replay_id: str | None = None
    attempt: int = 1

    @property
    def claim_id(self) -> str:
        """What makes a second delivery the same work: tenant, source and id, and the replay it belongs to.

        What is known by its position is known by its time too: a topic that is made anew has the same positions again.
        """
        parts = [self.tenant, self.source, self.id, self.replay_id or ""]
        if self.id == self.record.position and self.record.timestamp_ms is not None:
            parts.append(str(self.record.timestamp_ms))
        return str(uuid5(NAMESPACE, "\n".join(parts)))

    @property
    def origin(self) -> Origin:
        """When this record was written; of a replay, when the one that it sends back was."""
        if self.replay_id is None:
            return Origin(self.record.timestamp_ms or 0)
        written = _header(self.record, WRITTEN_HEADER) or ""
        return Origin(int(written) if _INSTANT.fullmatch(written) else 0, is_replay=True)


def schema_uri(payload: type[Payload]) -> str:
    """The `dataschema` of a payload's current version."""
    return f"{SCHEMA_PREFIX}{payload.TYPE}:{payload.VERSION}"


def event_id_for(*, cause: str, event_type: str, ordinal: str) -> str:
    """The id of an event that we publish: the same cause, type and ordinal give the same id, whoever runs it again."""
    return str(uuid5(NAMESPACE, f"{cause}\n{event_type}\n{ordinal}"))


def fact_id(payload: Payload, *, tenant: str) -> str | None:
    """The id of the event of a payload that has an identity: whoever publishes it, and however often. None for others."""
    identity = payload.identity()
    if identity is None:
        return None
    key = spec_for(type(payload)).key_for(tenant, payload)
    return event_id_for(cause=f"{tenant}\n{key}", event_type=payload.TYPE, ordinal=identity)


def decode(record: RawRecord, *, catalogue: Catalogue) -> Event[Payload]:
    """Understand a record, or say why not.

    Raises:
        MalformedError: Not an event of this topic; `reason_code` says which rule failed. No message quotes the payload.
        UnknownVersionError: A payload version that this build does not read.
    """
    spec = catalogue.spec(record.topic)
    replay_id = _replay_id(record) if catalogue.is_replay(record.topic) else None
    origin = record.position if replay_id is None else _origin(record)
    if record.value is None:
        return _tombstone(record, spec, origin=origin, replay_id=replay_id)
    if record.value == b"":
        raise MalformedError("the value is empty; a tombstone has no value at all", code="empty_body")
    read = read_attributes(record, origin=origin)
    payload = _read_payload(read, spec)
    tenant = _tenant(read.tenant)
    return Event(
        id=read.id,
        source=read.source,
        tenant=tenant,
        key=spec.key_for(tenant, payload),
        payload=payload,
        record=record,
        time=read.time,
        correlation_id=_text_or_none(read.correlation_id),
        traceparent=_text_or_none(read.traceparent),
        replay_id=replay_id,
    )


def encode(
    payload: Payload,
    *,
    catalogue: Catalogue,
    tenant: str,
    source: str,
    now: datetime,
    ordinal: str,
    cause: Event[Payload] | None = None,
    event_id: str | None = None,
) -> OutboundRecord:
    """Write a payload as a binary-mode CloudEvent, keyed by its topic's rule.

    Args:
        ordinal: Tells apart the events of one type that one cause leads to; ignored where the payload has an identity.
        event_id: For a first cause, such as a command line; otherwise the id is derived.
    Raises:
        TooLargeError: No broker need take it. Its size is that of the payload, which is not repeated.
    """
    spec = spec_for(type(payload))
    key = spec.key_for(tenant, payload)
    attributes: dict[str, Any] = {
        "id": event_id or _own_id(payload, tenant=tenant, cause=cause, ordinal=ordinal),
        "type": payload.TYPE,
        "source": source,
        "specversion": "1.0",
        "time": now,
        "datacontenttype": "application/json",
        "dataschema": schema_uri(type(payload)),
        "subject": key,
        "partitionkey": key,
        "tenant": tenant,
    }
    if cause is not None:
        attributes["causationid"] = cause.id
        attributes["correlationid"] = cause.correlation_id or cause.id
        if cause.traceparent:
            attributes["traceparent"] = cause.traceparent
    sequence = getattr(payload, "sequence", None)
    if sequence is not None:
        attributes["sequence"] = f"{sequence:010d}"
    expires_at = getattr(payload, "expires_at", None)
    if expires_at is not None:
        attributes["expirytime"] = expires_at.isoformat()
    message = binding.to_binary(CloudEvent(attributes, payload.model_dump_json(exclude_none=True).encode()), _FORMAT)
    if len(message.value or b"") > MAX_EVENT_BYTES:
        raise TooLargeError(f"{payload.TYPE} has {len(message.value or b''):,} bytes; an event may have {MAX_EVENT_BYTES:,}")
    return OutboundRecord(topic=catalogue.name(spec), key=key.encode(), value=message.value, headers=tuple(message.headers.items()))


def with_attempt(event: Event[PayloadT_co], attempt: int) -> Event[PayloadT_co]:
    """The same event, started for the `attempt`-th time."""
    return replace(event, attempt=attempt)


def _own_id(payload: Payload, *, tenant: str, cause: Event[Payload] | None, ordinal: str) -> str:
    own = fact_id(payload, tenant=tenant)
    if own is not None:
        return own
    if cause is None:
        raise ValueError(f"{payload.TYPE} has no identity and no cause: give it an event_id")
    return event_id_for(cause=f"{tenant}\n{cause.id}", event_type=payload.TYPE, ordinal=ordinal)


def _tombstone(record: RawRecord, spec: TopicSpec, *, origin: str, replay_id: str | None) -> Event[Payload]:
    if spec.tombstone is None or spec.key_field is None:
        raise MalformedError(f"{spec.name} has no meaning for a record without a value", code="unexpected_tombstone")
    if record.key is None:
        raise MalformedError("a tombstone needs a key, `tenant/id`", code="tombstone_without_key")
    try:
        tenant, _, subject = record.key.decode().partition("/")
        payload = spec.tombstone.model_validate({spec.key_field: clean_text(subject)})
    except UnicodeDecodeError as error:
        raise MalformedError("the key is not UTF-8", code="not_utf8") from error
    except ValidationError:
        raise MalformedError("the key of a tombstone is `tenant/id`, the id of 1 to 200 characters", code="bad_key") from None
    tenant = _tenant(tenant)
    return Event(
        id=origin,
        source=spec.name,
        tenant=tenant,
        key=spec.key_for(tenant, payload),
        payload=payload,
        record=record,
        replay_id=replay_id,
    )


def _read_payload(read: Attributes, spec: TopicSpec) -> Payload:
    model = next((payload for payload in spec.payloads if read.type == payload.TYPE), None)
    if model is None:
        raise MalformedError(f"this type does not belong on {spec.name}", code="unknown_type")
    current = upcasts.upcast(
        clean_json(read.data), event_type=model.TYPE, version=_version(read.dataschema, model), current=model.VERSION
    )
    try:
        return model.model_validate(current)
    except ValidationError as error:
        raise MalformedError(_field_problems(error), code="bad_payload") from None


def _version(schema: str | None, model: type[Payload]) -> int:
    if schema is None:
        return model.VERSION
    found = _SCHEMA_VERSION.fullmatch(schema.removeprefix(f"{SCHEMA_PREFIX}{model.TYPE}"))
    if found is None:
        raise UnknownVersionError(f"the dataschema is not one of {SCHEMA_PREFIX}{model.TYPE}:<version>")
    return int(found.group(1))


def _field_problems(error: ValidationError) -> str:
    """Field paths and rules; never the input, which may be personal."""
    problems = (
        f"{'.'.join(str(part)[:60] for part in problem['loc']) or 'data'}: {problem['type']}" for problem in error.errors()[:5]
    )
    return "; ".join(problems)


def is_tenant(name: str) -> bool:
    """Whether records may be of a tenant of this name."""
    return _TENANT.fullmatch(name) is not None


def _tenant(value: object) -> str:
    if not isinstance(value, str) or not is_tenant(value):
        raise MalformedError("no usable `tenant`: letters, digits, `_ . -`, at most 100", code="bad_tenant")
    return value


def _replay_id(record: RawRecord) -> str:
    found = _header(record, REPLAY_ID_HEADER)
    if found is None:
        raise MalformedError(f"a record on a replay topic needs {REPLAY_ID_HEADER}", code="replay_without_id")
    return found


def _origin(record: RawRecord) -> str:
    """`topic/partition/offset` of the first delivery, which a replay carries along."""
    parts = [_header(record, name) for name in ORIGIN_HEADERS]
    if not all(parts) or f"{parts[0]}{REPLAY_SUFFIX}" != record.topic:
        raise MalformedError("a record on a replay topic needs the position it came from", code="replay_without_origin")
    return "/".join(part for part in parts if part)


def _header(record: RawRecord, name: str) -> str | None:
    """The last one counts: whoever sends a record back writes behind what its producer wrote."""
    for key, value in reversed(record.headers):
        if key == name and value is not None:
            return value.decode(errors="replace")
    return None


def _text_or_none(value: object) -> str | None:
    return clean_text(value)[:512] if isinstance(value, str) else None
