"""What `sluice asyncapi` promises, held against records as they are on the wire."""

import json
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from infra.kafka.contract import asyncapi_document
from topics.catalogue import Catalogue
from topics.records import RawRecord

ROOT = "urn:contract"


@dataclass
class Contract:
    """Checks records by the document alone; knows no model of ours. `checked` counts records by type."""

    document: dict[str, Any]
    checked: dict[str, int] = field(default_factory=dict)
    _validators: dict[tuple[str, str], Draft202012Validator] = field(default_factory=dict)

    def __post_init__(self) -> None:
        resource = Resource.from_contents(self.document, default_specification=DRAFT202012)
        self._registry = Registry().with_resource(ROOT, resource)

    def problems(self, record: RawRecord) -> list[str]:
        """Why a record is not what its channel promises; empty when it is."""
        headers = {name: (value or b"").decode() for name, value in record.headers}
        channel = self.document["channels"].get(record.topic)
        if channel is None:
            return [f"{record.topic} is no channel"]
        event_type = headers.get("ce_type", "")
        if event_type not in channel["messages"]:
            return [f"{record.topic} has no message {event_type!r}"]
        message = self.document["components"]["messages"][event_type]
        self.checked[event_type] = self.checked.get(event_type, 0) + 1
        payload = {"$ref": ROOT + message["payload"]["$ref"]}
        found = self._errors(event_type, "payload", payload, json.loads(record.value or b"null"))
        found += self._errors(event_type, "headers", message["headers"], headers)
        if (record.key or b"").decode() != headers.get("ce_partitionkey"):
            found.append("the key is not the partitionkey")
        return [f"{record.position} {event_type}: {problem}" for problem in found]

    def _errors(self, event_type: str, part: str, schema: dict[str, Any], instance: Any) -> list[str]:
        validator = self._validators.get((event_type, part))
        if validator is None:
            validator = Draft202012Validator(schema, registry=self._registry, format_checker=FormatChecker())
            self._validators[event_type, part] = validator
        return [f"{part} {error.json_path}: {error.message}" for error in validator.iter_errors(instance)]


@cache
def contract_of(prefix: str) -> Contract:
    return Contract(asyncapi_document(Catalogue(prefix), version="0"))
