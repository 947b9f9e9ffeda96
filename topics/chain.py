"""What a link of a tenant's chain of outcomes says. Anybody can compute it from the topic alone.

`digest` is SHA-256 in hex over RFC 8785 canonical JSON of `{tenant, type, payload, number, at, previous}`: `payload` as it stands
on the topic, without `chain`; `previous` is the digest of the link before, sixty-four zeros for the first. Numbers start at 1.
"""

import hashlib
from datetime import datetime
from typing import Any, Final, cast

import orjson
import rfc8785

from topics.events import ApprovalAccepted, ApprovalExecuted, ApprovalExpired, ApprovalRefused, ChainLink

Outcome = ApprovalAccepted | ApprovalRefused | ApprovalExpired | ApprovalExecuted

GENESIS: Final = "0" * 64


def on_the_wire(outcome: Outcome) -> dict[str, Any]:
    """An outcome as JSON, as it stands on the topic."""
    return orjson.loads(outcome.model_dump_json(exclude_none=True))


def linked(outcome: Outcome, *, tenant: str, number: int, previous: str, at: datetime) -> Outcome:
    """The outcome with its link."""
    bare = ChainLink(number=number, previous=previous, at=at, digest="")
    placed = outcome.model_copy(update={"chain": bare})
    digest = digest_of(on_the_wire(placed), event_type=outcome.TYPE, tenant=tenant)
    return outcome.model_copy(update={"chain": bare.model_copy(update={"digest": digest})})


def digest_of(wire: dict[str, Any], *, event_type: str, tenant: str) -> str:
    """The digest that the link of this outcome must have.

    Raises:
        ValueError: It has no link, or a number without an exact form.
    """
    found: Any = wire.get("chain")
    if not isinstance(found, dict):
        raise ValueError("no link")  # noqa: TRY004 -- whatever is wrong with an outcome, it is no outcome of ours
    link = {name: value for name, value in cast("dict[str, Any]", found).items() if name != "digest"}
    payload = {name: value for name, value in wire.items() if name != "chain"}
    return _sha256({"tenant": tenant, "type": event_type, "payload": payload, **link})


def content_of(outcome: Outcome) -> str:
    """What tells two outcomes apart, links aside."""
    return _sha256({"type": outcome.TYPE, "payload": on_the_wire(outcome.model_copy(update={"chain": None}))})


def _sha256(value: Any) -> str:
    return hashlib.sha256(rfc8785.dumps(value)).hexdigest()
