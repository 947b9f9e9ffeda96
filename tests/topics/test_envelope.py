"""The envelope: whatever comes in is an event or has a reason; whatever goes out comes in again as it was."""

import base64
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from cloudevents.core.bindings import kafka as binding
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.topics.payloads import MODELS, json_values, payloads
from topics import events
from topics.catalogue import ANSWERS, QUERIES, SPECS, TICKETS, Catalogue, spec_for
from topics.envelope import Event, decode, encode, event_id_for, schema_uri, with_attempt
from topics.errors import MalformedError, RejectedError, UnknownVersionError
from topics.events import AnswerCompleted, Payload, QueryAsked, TicketErased, TicketOpened
from topics.records import Headers, RawRecord

CATALOGUE = Catalogue()
NOW = datetime(2025, 6, 1, 10, tzinfo=UTC)
TOPICS = sorted(CATALOGUE.all_names())

OPENED = {"ticket_id": "T-17", "body": "Printer is offline"}
HEADERS: Headers = (("ce_id", b"evt-1"), ("ce_type", b"ticket.opened"), ("ce_source", b"crm"), ("ce_tenant", b"acme"))


def opened(*more: tuple[str, bytes | None], value: bytes | None = None, key: bytes | None = b"acme/T-17") -> RawRecord:
    """E0 of the cases; a header that is given replaces the usual one."""
    given_names = {name for name, _ in more}
    headers = tuple(header for header in HEADERS if header[0] not in given_names) + more
    return RawRecord("tickets", 2, 7, key, json.dumps(OPENED).encode() if value is None else value, headers)


def with_data(**fields: Any) -> RawRecord:
    return opened(value=json.dumps({**OPENED, **fields}).encode())


def structured(**attributes: Any) -> RawRecord:
    event = {"specversion": "1.0", "id": "evt-1", "type": "ticket.opened", "source": "crm", "tenant": "acme", "data": OPENED}
    value = json.dumps({name: one for name, one in {**event, **attributes}.items() if one is not Ellipsis}).encode()
    return RawRecord("tickets", 2, 7, b"acme/T-17", value, (("content-type", b"application/cloudevents+json; charset=utf-8"),))


def read(record: RawRecord) -> Event[Any]:
    return decode(record, catalogue=CATALOGUE)


def refusal(record: RawRecord) -> RejectedError:
    with pytest.raises(RejectedError) as caught:
        read(record)
    assert type(caught.value) in {MalformedError, UnknownVersionError}
    return caught.value


def reason_of(record: RawRecord) -> str | None:
    try:
        read(record)
    except RejectedError as error:
        return str(error)
    return None


def sent(payload: Payload, *, tenant: str = "acme", cause: Event[Any] | None = None, **more: Any) -> RawRecord:
    """A payload as the next reader gets it."""
    event_id = None if cause or payload.identity() else "first"
    arguments = {"event_id": event_id, "ordinal": "0", "source": "test"} | more
    out = encode(payload, catalogue=CATALOGUE, tenant=tenant, now=NOW, cause=cause, **arguments)
    return RawRecord(out.topic, 0, 0, out.key, out.value, out.headers)


HEADER_NAMES = [
    "ce_id",
    "ce_type",
    "ce_source",
    "ce_specversion",
    "ce_tenant",
    "ce_time",
    "ce_dataschema",
    "ce_subject",
    "ce_data",
    "ce_",
    "ce_Bad-Name",
    "CE_ID",
    "content-type",
    "Content-Type",
    "reply_to",
    "sluice.replay.id",
    "__dlq.errors.topic",
    "__dlq.errors.partition",
    "__dlq.errors.offset",
]
PLAUSIBLE = [
    b"ticket.opened query.asked approval.decided 1.0 acme 1 application/cloudevents+json application/json tickets urn:x".split(),
    [b"2025-06-01T10:00:00Z", b"0001-01-01T00:00:00+14:00", b"9999-12-31T23:59:59-14:00", b"", b"\xff", "\u0661".encode()],
    [schema_uri(TicketOpened).encode(), schema_uri(TicketOpened).encode() + b"0", b"urn:sluice:schema:ticket.opened:x:1"],
]
values = st.none() | st.binary(max_size=12) | st.sampled_from([value for group in PLAUSIBLE for value in group])
header_lists = st.lists(st.tuples(st.sampled_from(HEADER_NAMES) | st.text(max_size=6), values), max_size=9).map(tuple)
envelopes = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(
        ("specversion", "id", "type", "source", "tenant", "time", "dataschema", "data", "data_base64"),
        json_values | st.sampled_from(["1.0", "ticket.opened", "acme", "2025-06-01T10:00:00Z", "\ud800", "a\x00b"]),
    ),
)
bodies = (
    st.none()
    | st.binary(max_size=40)
    | json_values.map(lambda value: json.dumps(value).encode())
    | envelopes.map(lambda value: json.dumps(value).encode())
    | st.integers(1, 3000).map(lambda depth: b'{"ticket_id":"T","body":"x","n":%s}' % (b"[" * depth + b"]" * depth))
)


@given(topic=st.sampled_from(TOPICS), key=st.none() | st.binary(max_size=12), value=bodies, headers=header_lists)
@example(topic="tickets", key=None, value=b"1" * 5000, headers=(("ce_type", b"ticket.opened"),))
@example(topic="tickets", key=None, value=b"{}", headers=(("ce_type", b"ticket.opened"), ("ce_time", b"0001-01-01T00:00:00+05:00")))
def test_any_record_is_an_event_or_has_a_reason(topic: str, key: bytes | None, value: bytes | None, headers: Headers):
    """P10. What was understood can be claimed, keyed and written about."""
    try:
        event = read(RawRecord(topic, 0, 5, key, value, headers))
    except (MalformedError, UnknownVersionError):
        return
    assert len(event.claim_id) == 36
    event.key.encode()
    event.payload.model_dump_json()


@settings(max_examples=60)
@given(st.data())
def test_no_reason_quotes_what_the_record_said(data: st.DataObject):
    """P11."""
    secret = "jane.roe@example.test"
    spot = data.draw(st.sampled_from(["id", "time", "tenant", "type", "dataschema", "source", "specversion", "extra", "data"]))
    record = structured(**{spot: data.draw(st.sampled_from([f"{secret}\n", {secret: secret}, [secret], f" {secret}"]))})
    binary = opened((f"ce_{spot}", f"{secret}\x00".encode()), (f"ce_{spot}", b"another"))
    field = data.draw(st.sampled_from(sorted(TicketOpened.model_fields)))
    broken = with_data(**{field: {secret: [secret]}})
    for one in (record, binary, broken, opened(value=secret.encode()), replace(opened(key=secret.encode()), value=None)):
        assert secret not in (reason_of(one) or "")


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.TYPE)
@settings(max_examples=15)
@given(data=st.data())
def test_every_payload_comes_back_as_it_went_out_in_both_modes(model: type[Payload], data: st.DataObject):
    payload = data.draw(payloads(model))
    record = sent(payload)
    event = read(record)
    assert event.payload == payload
    assert event.payload.model_dump() == payload.model_dump()
    assert (event.tenant, event.time, event.source) == ("acme", NOW, "test")
    assert record.key is not None
    assert record.key.decode() == event.key == spec_for(model).key_for("acme", payload)
    cloud = binding.from_binary(binding.KafkaMessage(dict(record.headers), None, record.value or b""), JSONFormat(), CloudEvent)
    again = binding.to_structured(cloud, JSONFormat())
    whole = read(replace(record, value=again.value, headers=tuple(again.headers.items())))
    assert whole == replace(event, record=whole.record)


def test_what_a_foreign_client_reads_is_a_binary_cloudevent():
    record = sent(QueryAsked(thread_id="t/1", text="hi"), tenant="acme", event_id="q1")
    headers = {name: value and value.decode() for name, value in record.headers}
    assert headers == {
        "ce_id": "q1",
        "ce_type": "query.asked",
        "ce_source": "test",
        "ce_specversion": "1.0",
        "ce_time": "2025-06-01T10:00:00Z",
        "ce_dataschema": "urn:sluice:schema:query.asked:1",
        "ce_subject": "acme/t/1",
        "ce_partitionkey": "acme/t/1",
        "ce_tenant": "acme",
        "content-type": "application/json",
    }
    assert json.loads(record.value or b"") == {"thread_id": "t/1", "text": "hi"}


# Ids


def test_the_same_cause_type_and_ordinal_give_the_same_id_and_nothing_else_does():
    """P2: a re-run publishes the ids of the first run."""
    cause = read(opened())
    triaged = events.TicketTriaged(ticket_id="T-17", intent="i", priority="low", needs_person=False, summary="s")

    def id_of(*, ordinal: str = "0", of: Event[Any] = cause, tenant: str = "acme") -> str:
        return read(sent(triaged, cause=of, ordinal=ordinal, tenant=tenant)).id

    assert id_of() == id_of()
    others = {id_of(), id_of(ordinal="1"), id_of(of=replace(cause, id="evt-2")), id_of(tenant="globex")}
    assert len(others) == 4


def test_an_event_with_an_identity_has_one_id_whoever_publishes_it_and_why():
    done = AnswerCompleted(thread_id="t", query_id="q1", attempt=1, text="x")
    one, other = read(sent(done, cause=read(opened()), ordinal="3")), read(sent(done, ordinal="9", source="elsewhere"))
    assert one.id == other.id
    assert read(sent(done, tenant="globex")).id != one.id
    assert read(sent(done.model_copy(update={"thread_id": "u"}))).id != one.id


def test_a_first_cause_without_an_identity_needs_an_id():
    with pytest.raises(ValueError, match="event_id"):
        sent(QueryAsked(thread_id="t", text="hi"), event_id=None, ordinal="0")


@given(st.text(max_size=8), st.text(max_size=8))
@example("a", "b")
def test_ids_are_equal_only_for_equal_parts(left: str, right: str):
    one = event_id_for(cause="c", event_type="t", ordinal=left)
    assert (one == event_id_for(cause="c", event_type="t", ordinal=right)) == (left == right)


def test_what_an_event_causes_carries_its_chain():
    cause = read(opened(("ce_correlationid", b"root"), ("ce_traceparent", b"00-1-2-01")))
    caused = sent(AnswerCompleted(thread_id="t", query_id="q", attempt=1, text=""), cause=cause)
    headers = dict(caused.headers)
    assert (headers["ce_causationid"], headers["ce_correlationid"], headers["ce_traceparent"]) == (b"evt-1", b"root", b"00-1-2-01")
    assert dict(sent(AnswerCompleted(thread_id="t", query_id="q", attempt=1, text=""), cause=read(opened())).headers)[
        "ce_correlationid"
    ] == (b"evt-1")


@pytest.mark.parametrize("record", [opened(("ce_id", None)), structured(id=...), structured(id=None)])
def test_a_record_without_an_id_is_known_by_its_position_however_often_it_is_delivered(record: RawRecord):
    """P2: a random id would make a redelivery new work."""
    assert read(record).id == "tickets/2/7"
    assert read(record).claim_id == read(record).claim_id


def test_claims_tell_tenants_sources_and_replays_apart():
    events_ = [read(opened()), read(opened(("ce_tenant", b"globex"))), read(opened(("ce_source", b"shop")))]
    events_ += [read(replayed(count)) for count in (1, 2)]
    assert len({event.claim_id for event in events_}) == 5
    assert read(replace(opened(), partition=5, offset=99)).claim_id == events_[0].claim_id
    assert with_attempt(events_[0], 3).claim_id == events_[0].claim_id


def replayed(count: int, *, origin: str = "tickets", topic: str = "tickets.replay", record: RawRecord | None = None) -> RawRecord:
    record = record or opened()
    ours = (
        ("__dlq.errors.topic", origin.encode()),
        ("__dlq.errors.partition", b"2"),
        ("__dlq.errors.offset", b"7"),
        ("sluice.replay.id", f"letter:{count}".encode()),
    )
    return replace(record, topic=topic, partition=0, offset=count, headers=record.headers + ours)


def test_a_replay_has_a_claim_of_its_own_and_keeps_the_id_of_its_origin():
    without_id = opened(("ce_id", None))
    assert read(replayed(1, record=without_id)).id == read(without_id).id == "tickets/2/7"
    assert read(replayed(1)).id == "evt-1"
    assert read(replayed(1)).claim_id != read(opened()).claim_id
    tombstone = RawRecord("tickets", 2, 7, b"acme/T-17", None)
    assert read(replayed(1, record=tombstone)).id == read(tombstone).id


@pytest.mark.parametrize(
    ("record", "code"),
    [
        (replace(opened(), topic="tickets.replay"), "replay_without_id"),
        (replayed(1, origin="approvals.decisions"), "replay_without_origin"),
        (replace(opened(("sluice.replay.id", b"x")), topic="tickets.replay"), "replay_without_origin"),
    ],
)
def test_a_replay_topic_takes_replays_of_its_own_input_only(record: RawRecord, code: str):
    assert refusal(record).reason_code == code


def test_a_producer_that_writes_our_headers_gains_nothing():
    """Only a replay topic's records are replays: on an input these headers are the producer's own talk."""
    forged = opened(("ce_id", None), *replayed(1).headers[-4:])
    event = read(forged)
    assert (event.id, event.replay_id) == ("tickets/2/7", None)


@given(header_lists)
def test_no_header_chooses_where_an_answer_goes(headers: Headers):
    """DESIGN 2: `reply_to`, or any other header, never chooses where we publish."""
    cause = replace(read(opened()), record=replace(opened(), headers=headers))
    out = sent(AnswerCompleted(thread_id="t", query_id="q", attempt=1, text=""), cause=cause)
    assert (out.topic, out.key) == (ANSWERS.name, b"acme/t")
    assert "reply_to" not in dict(out.headers)


# Case 2: nulls


def test_a_tombstone_is_a_wish_to_erase_and_an_empty_value_is_a_mistake():
    event = read(RawRecord("tickets", 0, 1, b"acme/T-17", None))
    assert (event.payload, event.tenant, event.key) == (TicketErased(ticket_id="T-17"), "acme", "acme/T-17")
    assert refusal(opened(value=b"")).reason_code == "empty_body"


def test_a_record_without_a_key_gets_its_key_from_the_body():
    event = read(opened(key=None))
    assert event.key == "acme/T-17"
    triaged = events.TicketTriaged(ticket_id="T-17", intent="i", priority="low", needs_person=False, summary="s")
    assert sent(triaged, cause=event).key == b"acme/T-17"


@pytest.mark.parametrize(
    ("topic", "key", "code"),
    [
        ("tickets", None, "tombstone_without_key"),
        ("tickets", b"T-17", "bad_key"),
        ("tickets", b"acme/", "bad_key"),
        ("tickets", b"acme/\x00", "bad_key"),
        ("tickets", b"acme/" + b"x" * 201, "bad_key"),
        ("tickets", b"/T-17", "bad_tenant"),
        ("tickets", b"a b/T-17", "bad_tenant"),
        ("tickets", b"\xff/T-17", "not_utf8"),
        ("queries", b"acme/t", "unexpected_tombstone"),
        ("dead-letters", b"acme/t", "unexpected_tombstone"),
    ],
)
def test_a_tombstone_that_erases_nothing_says_why(topic: str, key: bytes | None, code: str):
    assert refusal(RawRecord(topic, 0, 1, key, None)).reason_code == code


# Case 4: text that is legal JSON and not storable


@pytest.mark.parametrize(
    ("body", "stored"),
    [
        ("caf\ud83d broken", "caf\ufffd broken"),
        ("a\x00b", "ab"),
        ("\u202e\u05e9\u05dc\u05d5\u05dd", "\u202e\u05e9\u05dc\u05d5\u05dd"),
        ("\U0001f469\u200d\U0001f469\u200d\U0001f467", "\U0001f469\u200d\U0001f469\u200d\U0001f467"),
    ],
)
def test_text_is_made_storable_where_it_comes_in_and_otherwise_left_alone(body: str, stored: str):
    for record in (with_data(body=body), structured(data={**OPENED, "body": body})):
        payload = read(record).payload
        assert payload.body == stored
        assert payload.body.encode().decode() == stored
    decided = {
        "approval_id": "a",
        "thread_id": "t",
        "decision": "edit",
        "args_digest": "d",
        "approver": "u",
        "arguments": {body: [body]},
    }
    record = RawRecord(
        "approvals.decisions", 0, 0, None, json.dumps(decided).encode(), (("ce_type", b"approval.decided"), HEADERS[3])
    )
    assert read(record).payload.arguments == {stored: [stored]}


# Case 8: versions, fields, instants


def test_an_unknown_version_is_parked_under_its_own_code():
    newer = opened(("ce_dataschema", b"urn:sluice:schema:ticket.opened:2"))
    error = refusal(newer)
    assert (type(error), error.reason_code) == (UnknownVersionError, "unknown_version")
    for schema in (b"urn:other:1", b"urn:sluice:schema:ticket.opened:1:1", "urn:sluice:schema:ticket.opened:\u0661".encode(), b"x"):
        assert refusal(opened(("ce_dataschema", schema))).reason_code == "unknown_version"
    assert read(opened(("ce_dataschema", schema_uri(TicketOpened).encode()))).payload.ticket_id == "T-17"


def test_extra_fields_and_attributes_are_ignored():
    assert read(with_data(extra={"x": 1})).payload == read(opened()).payload
    assert read(structured(extra={"x": 1})).payload == read(opened(("ce_extra", b"x"))).payload


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"ticket_id": 3720}, "ticket_id: string_type"),
        ({"ticket_id": ""}, "ticket_id: string_too_short"),
        ({"ticket_id": "x" * 201}, "ticket_id: string_too_long"),
        ({"body": None, "title": 5}, "title: string_type; body: string_type"),
    ],
)
def test_a_bad_field_is_named_by_its_path_and_its_text_is_not(fields: dict[str, Any], reason: str):
    error = refusal(with_data(**fields))
    assert (error.reason_code, str(error)) == ("bad_payload", reason)


def test_a_missing_field_is_named():
    assert str(refusal(opened(value=b'{"body":"x"}'))) == "ticket_id: missing"


INSTANTS = [
    ("2025-06-01T10:00:00+05:45", "2025-06-01T04:15:00+00:00"),
    ("2025-06-01T10:00:00Z", "2025-06-01T10:00:00+00:00"),
    ("2025-06-01t10:00:00.123456789z", "2025-06-01T10:00:00.123456+00:00"),
    ("2025-06-01 10:00:00-00:00", "2025-06-01T10:00:00+00:00"),
]
NO_INSTANTS: list[Any] = [
    "2025-06-01T10:00:00",
    "2025-06-01T10:00:60Z",
    "2025-06-01T24:00:00Z",
    "2025-02-30T10:00:00Z",
    "2025-06-01",
    "2025-W22-7T10:00:00Z",
    "20250601T100000Z",
    "0001-01-01T00:00:00+05:00",
    "9999-12-31T23:59:59-05:00",
    "1717236000",
    "",
    "\u0662025-06-01T10:00:00Z",
    1717236000,
    1717236000000,
    True,
]


@pytest.mark.parametrize(("text", "utc"), INSTANTS)
def test_an_instant_is_kept_in_utc(text: str, utc: str):
    for record in (opened(("ce_time", text.encode())), structured(time=text)):
        assert read(record).time == datetime.fromisoformat(utc)
    opened_at = read(with_data(opened_at=text)).payload.opened_at
    assert (opened_at, opened_at.tzinfo) == (datetime.fromisoformat(utc), UTC)


@pytest.mark.parametrize("value", NO_INSTANTS)
def test_everything_else_is_no_instant_and_parked(value: Any):
    """The rule of `topics/attributes.py`: nothing is guessed, so no naive time is ever compared with an aware one."""
    assert refusal(structured(time=value)).reason_code == "bad_time"
    assert refusal(with_data(opened_at=value)).reason_code == "bad_payload"
    if isinstance(value, str):
        assert refusal(opened(("ce_time", value.encode()))).reason_code == "bad_time"


def test_an_event_without_a_time_has_none():
    """The clock of whoever reads it is not its time."""
    assert read(opened()).time is None
    assert read(structured(time=None)).time is None


# Envelopes


@pytest.mark.parametrize(
    ("record", "code"),
    [
        (opened(("ce_type", None)), "missing_type"),
        (opened(("ce_type", b"query.asked")), "unknown_type"),
        (opened(("ce_specversion", b"0.3")), "bad_envelope"),
        (opened(("ce_id", b"")), "bad_envelope"),
        (opened(("ce_id", b"a\nb")), "bad_envelope"),
        (opened(("ce_id", b"x" * 1025)), "bad_envelope"),
        (opened(("ce_tenant", b"acme/x")), "bad_tenant"),
        (opened(("ce_tenant", None)), "bad_tenant"),
        (opened(("ce_id", b"a"), ("CE_ID", b"b")), "ambiguous_header"),
        (opened(("ce_subject", b"\xff")), "not_utf8"),
        (opened(value=b"[1]"), "bad_json"),
        (opened(value=b'{"ticket_id":"T","body":"x","n":NaN}'), "bad_json"),
        (opened(value=b'{"ticket_id":"T","body":"x","n":1e400}'), "bad_json"),
        (opened(value=b'{"ticket_id":"T","body":"x","n":%s}' % (b"[" * 65 + b"]" * 65)), "too_deep"),
        (opened(value=b"\xef\xbb\xbf{}"), "bad_json"),
        (structured(id="a\ud83db"), "bad_envelope"),
        (structured(source="a\ud83db"), "bad_envelope"),
        (structured(id=5), "bad_envelope"),
        (structured(source=...), "bad_envelope"),
        (structured(data=...), "bad_json"),
        (structured(data=..., data_base64="!"), "bad_envelope"),
        (structured(data_base64="e30="), "bad_envelope"),
        (replace(structured(), headers=(("content-type", b"application/cloudevents-batch+json"),)), "bad_envelope"),
        (replace(structured(), value=b"[]"), "bad_json"),
    ],
)
def test_a_bad_envelope_has_a_stable_reason(record: RawRecord, code: str):
    assert refusal(record).reason_code == code


def test_a_repeated_header_that_says_the_same_is_fine_and_others_may_hold_anything():
    record = opened(("ce_id", b"evt-1"), ("ce_id", b"evt-1"), ("junk", b"\xff"), ("junk", None), ("reply_to", b"answers"))
    assert read(record).id == "evt-1"


def test_the_mode_is_told_by_a_content_type_in_any_case():
    record = replace(structured(), headers=(("Content-Type", b"Application/CloudEvents+JSON"), ("ce_type", b"ignored")))
    assert read(record).payload.ticket_id == "T-17"


def test_structured_data_may_be_base64():
    encoded = base64.b64encode(json.dumps(OPENED).encode()).decode()
    assert read(structured(data=..., data_base64=encoded)).payload == read(opened()).payload


def test_a_topic_that_is_not_ours_is_a_mistake_of_the_caller():
    with pytest.raises(LookupError):
        read(replace(opened(), topic="payments"))


def test_an_input_carries_only_its_own_types():
    for spec in SPECS:
        for model in MODELS:
            if model not in spec.payloads:
                record = RawRecord(spec.name, 0, 0, None, b"{}", (("ce_type", model.TYPE.encode()), HEADERS[3]))
                assert refusal(record).reason_code == "unknown_type"


def test_topic_prefixes_are_read_and_written():
    staging = Catalogue("staging.")
    out = encode(
        QueryAsked(thread_id="t", text="hi"), catalogue=staging, tenant="acme", source="s", now=NOW, ordinal="0", event_id="q"
    )
    assert out.topic == f"staging.{QUERIES.name}"
    assert decode(RawRecord(out.topic, 0, 0, out.key, out.value, out.headers), catalogue=staging).key == "acme/t"
    assert TICKETS.name in TOPICS
