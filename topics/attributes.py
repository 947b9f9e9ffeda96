"""CloudEvents attributes and data out of a record, in binary and in structured mode, read by one set of rules.

The SDK's own readers are not used: they give a record without an id a random one, so that a redelivery would be new work; they
give one without a time the clock's; they let dates beyond the calendar and lone surrogates through to where nobody expects them.
What they build, the SDK's event and its validation, is.

An instant is an RFC 3339 date and time with its offset, `2025-06-01T10:00:00+05:45`, and is kept in UTC. Everything else is no
instant, and the record is parked: naive times, epoch numbers, `24:00`, week dates, leap seconds, and dates that UTC cannot hold.
"""

import base64
import binascii
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NoReturn, cast

from cloudevents.core.exceptions import BaseCloudEventException
from cloudevents.core.v1.event import CloudEvent

from topics.errors import MalformedError
from topics.records import RawRecord

MAX_NAME_CHARS: Final = 1024
STRUCTURED: Final = "application/cloudevents"

# The SDK would put the clock's time where there is none.
_NO_TIME: Final = datetime.min.replace(tzinfo=UTC)

_RFC3339: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ](?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_ATTRIBUTE_HEADER: Final = re.compile(r"ce_[a-z0-9]{1,20}|content-type")
# What CloudEvents forbids in a string: controls, lone surrogates, and code points that are no characters.
_FORBIDDEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class Attributes:
    """What a record says of itself, and the JSON object it carries."""

    id: str
    type: str
    source: str
    time: datetime | None
    dataschema: str | None
    tenant: object
    correlation_id: object
    traceparent: object
    data: dict[str, Any]


def read_attributes(record: RawRecord, *, origin: str) -> Attributes:
    """Read either mode.

    Args:
        record: One that has a value.
        origin: The id of a record whose producer gave it none.

    Raises:
        MalformedError: `reason_code` says which rule failed. No message quotes the record.
    """
    headers = _headers(record)
    value = record.value or b""
    content_type = headers.get("content-type", "").strip().lower()
    if content_type.startswith(STRUCTURED):
        attributes, data = _structured(value, content_type)
    else:
        attributes, data = _binary(headers), _json(value)
        attributes.setdefault("source", record.topic)
    attributes.setdefault("id", origin)
    attributes.setdefault("specversion", "1.0")
    return _checked(attributes, data)


def instant(text: object) -> datetime:
    """An instant in UTC, by the rule of this module.

    Raises:
        ValueError: It is none. The message quotes nothing.
    """
    if not isinstance(text, str) or not _RFC3339.fullmatch(text):
        raise ValueError("not an RFC 3339 date and time with an offset")
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError("not a date of the calendar") from None


def _headers(record: RawRecord) -> dict[str, str]:
    """The headers that the envelope reads; others may hold anything. A repeated one must say the same each time."""
    headers: dict[str, str] = {}
    for name, value in record.headers:
        lowered = name.lower()
        if value is None or not (lowered.startswith("ce_") or lowered == "content-type"):
            continue
        try:
            text = value.decode()
        except UnicodeDecodeError as error:
            raise MalformedError("a CloudEvents header is not UTF-8", code="not_utf8") from error
        if headers.setdefault(lowered, text) != text:
            shown = lowered if _ATTRIBUTE_HEADER.fullmatch(lowered) else "of CloudEvents"
            raise MalformedError(f"header {shown} is there twice with different values", code="ambiguous_header")
    return headers


def _binary(headers: dict[str, str]) -> dict[str, Any]:
    if "ce_type" not in headers:
        raise MalformedError("no ce_type header, and not a structured CloudEvent", code="missing_type")
    return {name.removeprefix("ce_"): text for name, text in headers.items() if name.startswith("ce_")}


def _structured(value: bytes, content_type: str) -> tuple[dict[str, Any], Any]:
    if content_type.partition(";")[0].strip() not in {STRUCTURED, f"{STRUCTURED}+json"}:
        raise MalformedError("of structured CloudEvents only single ones in JSON are read", code="bad_envelope")
    event = _json(value)
    if not isinstance(event, dict):
        raise MalformedError("the value is not a JSON object", code="bad_json")
    # In JSON an attribute that is null is one that is not there.
    attributes = {name: one for name, one in cast("dict[str, Any]", event).items() if one is not None}
    data, encoded = attributes.pop("data", None), attributes.pop("data_base64", None)
    if encoded is None:
        return attributes, data
    if data is not None or not isinstance(encoded, str):
        raise MalformedError("`data_base64` is no text, or stands beside `data`", code="bad_envelope")
    try:
        return attributes, _json(base64.b64decode(encoded, validate=True))
    except (binascii.Error, ValueError) as error:
        raise MalformedError("`data_base64` is not Base64", code="bad_envelope") from error


def _checked(attributes: dict[str, Any], data: Any) -> Attributes:
    time = _time(attributes.pop("time")) if "time" in attributes else None
    try:
        cloud = CloudEvent({**attributes, "time": time or _NO_TIME})
    except (BaseCloudEventException, TypeError) as error:
        raise MalformedError("the CloudEvents attributes are not valid", code="bad_envelope") from error
    for name in (cloud.get_id(), cloud.get_source()):
        if len(name) > MAX_NAME_CHARS or _FORBIDDEN.search(name):
            raise MalformedError("the id or the source is too long or holds characters that no text may hold", code="bad_envelope")
    if not isinstance(data, dict):
        raise MalformedError("the data is not a JSON object", code="bad_json")
    return Attributes(
        id=cloud.get_id(),
        type=cloud.get_type(),
        source=cloud.get_source(),
        time=time,
        dataschema=cloud.get_dataschema(),
        tenant=attributes.get("tenant"),
        correlation_id=attributes.get("correlationid"),
        traceparent=attributes.get("traceparent"),
        data=cast("dict[str, Any]", data),
    )


def _time(value: object) -> datetime:
    try:
        return instant(value)
    except ValueError as error:
        raise MalformedError(f"the event's time is {error}", code="bad_time") from error


def _json(value: bytes) -> Any:
    """Strict JSON: one document in UTF-8, no NaN, no number beyond a float's range."""
    try:
        return _DECODER.decode(value.decode())
    except (ValueError, RecursionError) as error:
        raise MalformedError("the value is not JSON", code="bad_json") from error


def _finite(text: str) -> float:
    number = float(text)
    if number in {float("inf"), float("-inf")}:
        raise ValueError("out of range")
    return number


def _refuse(_constant: str) -> NoReturn:
    raise ValueError("not JSON")


_DECODER: Final = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse)
