"""The contract of the topics: an AsyncAPI 3.0 document, made from the catalogue and the payload models.

FastStream declares the channels and turns the models into schemas. What it doesn't know is added: a message per event type, the
CloudEvents headers, record keys, and topic settings. Source: AsyncAPI 3.0.0; its Kafka bindings 0.5.0.
"""

from typing import Any, Final, Union

from faststream.kafka import KafkaBroker
from faststream.specification import AsyncAPI

from topics.catalogue import SPECS, Catalogue, TopicSpec
from topics.envelope import schema_uri
from topics.events import Payload

BINDING: Final = "0.5.0"


def asyncapi_document(catalogue: Catalogue, *, version: str) -> dict[str, Any]:
    """The whole document, plain JSON. Dead letters have no payload of ours and are described in words."""
    document = AsyncAPI(
        _declared(catalogue),
        title="Sluice",
        version=version,
        schema_version="3.0.0",
        description="CloudEvents 1.0 on Kafka, binary mode. Every record has the ce_ headers below; the value is the JSON payload.",
    ).to_specification()
    plain: dict[str, Any] = document.to_jsonable()
    plain["components"]["messages"] = {}
    for spec in SPECS:
        if spec.payloads:
            _describe(plain, spec, catalogue.name(spec))
    return plain


def _declared(catalogue: Catalogue) -> KafkaBroker:
    """A broker that is never started: it only declares."""
    broker = KafkaBroker("localhost:9092", logger=None)
    for spec in SPECS:
        if not spec.payloads:
            continue
        name, body = catalogue.name(spec), Union[spec.payloads]  # noqa: UP007 -- the members are only known at run time
        if spec.direction == "in":

            async def receive(body: Payload) -> None:
                """Hold the place of a handler in the declaration."""

            receive.__annotations__["body"] = body
            broker.subscriber(name, title=name, description=spec.description, no_reply=True)(receive)
        else:
            broker.publisher(name, title=name, description=spec.description, schema=body)
    return broker


def _describe(document: dict[str, Any], spec: TopicSpec, name: str) -> None:
    channel, operation = document["channels"][name], document["operations"][name]
    messages = document["components"]["messages"]
    channel["messages"], operation["messages"] = {}, []
    for payload in spec.payloads:
        messages[payload.TYPE] = _message(spec, payload)
        channel["messages"][payload.TYPE] = {"$ref": f"#/components/messages/{payload.TYPE}"}
        operation["messages"].append({"$ref": f"#/channels/{_escape(name)}/messages/{payload.TYPE}"})
    configuration = {"cleanup.policy": [spec.cleanup], "retention.ms": spec.retention_ms}
    channel["bindings"]["kafka"] = {
        "topic": name,
        "partitions": spec.partitions,
        "topicConfiguration": configuration,
        "bindingVersion": BINDING,
    }
    channel["x-writers"] = list(spec.writers)
    if spec.tombstone is not None:
        channel["x-tombstone"] = f"A record with this key and no value means {spec.tombstone.TYPE}."


def _message(spec: TopicSpec, payload: type[Payload]) -> dict[str, Any]:
    return {
        "name": payload.TYPE,
        "title": payload.TYPE,
        "summary": (payload.__doc__ or "").strip(),
        "contentType": "application/json",
        "headers": _headers(payload),
        "payload": {"$ref": f"#/components/schemas/{payload.__name__}"},
        "correlationId": {"location": "$message.header#/ce_correlationid"},
        "bindings": {
            "kafka": {"key": {"type": "string", "description": f"tenant/{spec.key_field}"}, "bindingVersion": BINDING},
        },
    }


def _headers(payload: type[Payload]) -> dict[str, Any]:
    def text(description: str) -> dict[str, str]:
        return {"type": "string", "description": description}

    return {
        "type": "object",
        "required": ["ce_type", "ce_tenant"],
        "properties": {
            "ce_specversion": {"type": "string", "const": "1.0"},
            "ce_id": text("Unique per source. Without it the record's topic/partition/offset is its id."),
            "ce_type": {"type": "string", "const": payload.TYPE},
            "ce_source": text("Who says it."),
            "ce_time": {"type": "string", "format": "date-time"},
            "ce_tenant": text("Whose event it is: letters, digits, `_ . -`."),
            "ce_dataschema": {"type": "string", "const": schema_uri(payload)},
            "ce_subject": text("The record key as text."),
            "ce_partitionkey": text("The record key as text."),
            "ce_correlationid": text("The first event of the chain."),
            "ce_causationid": text("The event that led to this one."),
            "ce_traceparent": text("W3C trace context."),
            "content-type": {"type": "string", "const": "application/json"},
        },
    }


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
