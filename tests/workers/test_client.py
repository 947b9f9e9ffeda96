"""What is published from outside is read once by the rules of those who will read it."""

from typing import Any, cast

import pytest

from infra.clock import SystemClock
from infra.settings import load_settings
from topics.catalogue import Catalogue
from topics.envelope import decode
from topics.errors import MalformedError
from topics.events import QueryAsked
from topics.records import RawRecord
from workers.client import Client

QUESTION = QueryAsked(thread_id="t", text="hi")


@pytest.fixture
def client() -> Client:
    return Client(load_settings(topic_prefix="p."), Catalogue("p."), cast("Any", None), SystemClock(), "test")


def test_a_good_event_becomes_the_record_that_workers_read(client: Client):
    record = client.record(QUESTION, tenant="acme", event_id="q1")
    event = decode(RawRecord(record.topic, 0, 0, record.key, record.value, record.headers), catalogue=client.catalogue)
    assert (event.id, event.tenant, event.payload, record.topic) == ("q1", "acme", QUESTION, "p.queries")


@pytest.mark.parametrize(("tenant", "event_id"), [("a/b", "q1"), ("", "q1"), ("acme", "a\nb"), ("acme", "x" * 2000)])
def test_what_no_worker_would_take_is_refused_before_it_is_sent(tenant: str, event_id: str, client: Client):
    with pytest.raises(MalformedError):
        client.record(QUESTION, tenant=tenant, event_id=event_id)
