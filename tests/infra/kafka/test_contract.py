"""The AsyncAPI document says of every record what is really written."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.kafka.contract import asyncapi_document
from tests.stories.contract import Contract
from tests.topics.payloads import MODELS, payloads
from topics.catalogue import SPECS, Catalogue
from topics.envelope import encode
from topics.events import Payload
from topics.records import RawRecord

CATALOGUE = Catalogue("staging.")
DOCUMENT = asyncapi_document(CATALOGUE, version="1.2.3")
CONTRACT = Contract(DOCUMENT)


def references(part: Any) -> list[str]:
    if isinstance(part, dict):
        return [part["$ref"]] if "$ref" in part else [one for value in part.values() for one in references(value)]
    return [one for value in part for one in references(value)] if isinstance(part, list) else []


def test_the_document_is_plain_json_and_every_reference_leads_somewhere():
    assert json.loads(json.dumps(DOCUMENT)) == DOCUMENT
    for reference in references(DOCUMENT):
        found = DOCUMENT
        for step in reference.removeprefix("#/").split("/"):
            found = found[step.replace("~1", "/").replace("~0", "~")]
        assert found


def test_every_topic_that_carries_events_is_a_channel_with_its_messages():
    expected = {CATALOGUE.name(spec): {payload.TYPE for payload in spec.payloads} for spec in SPECS if spec.payloads}
    assert {name: set(channel["messages"]) for name, channel in DOCUMENT["channels"].items()} == expected
    actions = {name: operation["action"] for name, operation in DOCUMENT["operations"].items()}
    assert {name for name, action in actions.items() if action == "receive"} == {
        CATALOGUE.name(spec) for spec in SPECS if spec.direction == "in"
    }


def test_channels_say_how_the_topic_is_kept():
    for spec in SPECS:
        if spec.payloads:
            binding = DOCUMENT["channels"][CATALOGUE.name(spec)]["bindings"]["kafka"]
            assert binding["partitions"] == spec.partitions
            assert binding["topicConfiguration"] == {"cleanup.policy": [spec.cleanup], "retention.ms": spec.retention_ms}


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.TYPE)
@settings(max_examples=10)
@given(data=st.data())
def test_what_is_written_is_what_the_document_promises(model: type[Payload], data: st.DataObject):
    payload = data.draw(payloads(model))
    now = datetime(2025, 6, 1, tzinfo=UTC)
    out = encode(payload, catalogue=CATALOGUE, tenant="acme", source="s", now=now, ordinal="0", event_id="e")
    assert CONTRACT.problems(RawRecord(out.topic, 0, 0, out.key, out.value, out.headers)) == []
