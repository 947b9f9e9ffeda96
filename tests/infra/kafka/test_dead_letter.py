"""A dead letter keeps its record to the byte, says why it died, and cannot be talked into anything."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from infra.kafka import dead_letter as names
from infra.kafka.dead_letter import Death, dead_letter, header_text, original_headers
from topics.records import Headers, OutboundRecord, RawRecord

DEATH = Death(
    group="g",
    code="bad_json",
    disposition="poison",
    stage="decode",
    message="the value is not JSON",
    exception="MalformedError",
    delivery_count=1,
    first_failed_at_ms=1_000,
    last_failed_at_ms=2_000,
    tenant="acme",
)
RECORD = RawRecord("tickets", 3, 14, b"acme/T-17", b"\xff", (("a", b"1"), ("a", None), ("a", b"1"), ("b", b"\xff")), 500)
OUR_NAMES = [names.TOPIC, names.PARTITION, names.OFFSET, names.ID, names.REASON, names.REPLAY_ID, names.REPLAY_COUNT]

some_headers = st.lists(
    st.tuples(st.sampled_from([*OUR_NAMES, names.ORIGINAL_HEADERS, "x", "X", ""]), st.none() | st.binary(max_size=4)), max_size=8
).map(tuple)


def buried(record: RawRecord, death: Death = DEATH) -> OutboundRecord:
    return dead_letter(record, death, topic="dead-letters")


def sent_back(letter: OutboundRecord, count: int) -> RawRecord:
    """As an operator's replay writes it."""
    facts = {name: header_text(letter.headers, name) or "" for name in (names.TOPIC, names.PARTITION, names.OFFSET)}
    facts[names.FIRST_FAILED_AT] = header_text(letter.headers, names.FIRST_FAILED_AT) or ""
    facts |= {names.REPLAY_ID: f"{header_text(letter.headers, names.ID)}:{count}", names.REPLAY_COUNT: str(count)}
    headers = names.with_ours(original_headers(letter.headers), facts)
    return RawRecord(f"{facts[names.TOPIC]}.replay", 0, count, letter.key, letter.value, headers, 900)


@given(headers=some_headers, key=st.none() | st.binary(max_size=4), value=st.none() | st.binary(max_size=4))
def test_key_value_and_headers_are_kept_to_the_byte_whatever_they_are_called(
    headers: Headers, key: bytes | None, value: bytes | None
):
    """P10."""
    letter = buried(replace(RECORD, key=key, value=value, headers=headers))
    assert (letter.key, letter.value) == (key, value)
    assert original_headers(letter.headers) == headers
    assert letter.headers[: len(headers)] == headers


@given(headers=some_headers)
def test_thirty_hops_change_nothing_of_the_record_and_add_no_header(headers: Headers):
    first = buried(replace(RECORD, headers=headers))
    letter = first
    for hop in range(1, 31):
        letter = buried(sent_back(letter, hop), replace(DEATH, code="unexpected", first_failed_at_ms=9_000 + hop))
        assert original_headers(letter.headers) == headers
        assert len(letter.headers) == len(first.headers)
        assert header_text(letter.headers, names.REPLAY_COUNT) == str(hop)
    kept = (names.TOPIC, names.PARTITION, names.OFFSET, names.FIRST_FAILED_AT, names.ID)
    assert [header_text(letter.headers, name) for name in kept] == [header_text(first.headers, name) for name in kept]
    assert header_text(letter.headers, names.REASON) == "unexpected"


def test_the_letter_says_where_the_record_was_and_why_it_died():
    letter = buried(RECORD)
    assert {name: header_text(letter.headers, name) for name, _ in letter.headers[len(RECORD.headers) :]} == {
        names.TOPIC: "tickets",
        names.PARTITION: "3",
        names.OFFSET: "14",
        names.GROUP: "g",
        names.DELIVERY_COUNT: "1",
        names.MESSAGE: "the value is not JSON",
        names.ID: names.dead_letter_id(group="g", topic="tickets", partition="3", offset="14", written_at="500"),
        names.REASON: "bad_json",
        names.DISPOSITION: "poison",
        names.STAGE: "decode",
        names.EXCEPTION: "MalformedError",
        names.TIMESTAMP: "500",
        names.FIRST_FAILED_AT: "1000",
        names.LAST_FAILED_AT: "2000",
        names.TENANT: "acme",
        names.REPLAY_COUNT: "0",
        names.REPLAY_EDITED: "",
        names.ORIGINAL_HEADERS: "4",
    }


def test_a_producer_cannot_name_where_its_dead_letter_goes_back_to():
    """A ticket with these headers would otherwise come back as a decision."""
    forged: Headers = (
        (names.TOPIC, b"approvals.decisions"),
        (names.PARTITION, b"0"),
        (names.OFFSET, b"0"),
        (names.REPLAY_ID, b"x"),
        (names.REPLAY_COUNT, b"0"),
        (names.ORIGINAL_HEADERS, b"0"),
    )
    for topic in ("tickets", "tickets.replay"):
        letter = buried(replace(RECORD, topic=topic, headers=forged))
        assert header_text(letter.headers, names.TOPIC) == topic
        assert header_text(letter.headers, names.OFFSET) == "14"
        assert original_headers(letter.headers) == forged


def test_a_letter_that_others_wrote_is_read_by_the_names_of_its_headers():
    headers = (("a", b"1"), (names.TOPIC, b"tickets"), (names.ORIGINAL_HEADERS, b"99"))
    assert original_headers(headers) == (("a", b"1"),)
    assert original_headers((("a", b"1"), (names.ORIGINAL_HEADERS, b"-1"))) == (("a", b"1"),)


def test_the_same_record_of_the_same_group_has_one_id():
    assert header_text(buried(RECORD).headers, names.ID) == header_text(buried(replace(RECORD, value=None)).headers, names.ID)
    others = [replace(RECORD, offset=15), replace(RECORD, partition=4), replace(RECORD, topic="queries")]
    ids = {header_text(buried(one).headers, names.ID) for one in (RECORD, *others)}
    ids.add(header_text(buried(RECORD, replace(DEATH, group="h")).headers, names.ID))
    assert len(ids) == 5


def test_a_long_message_is_cut_between_characters_and_an_unknown_timestamp_is_empty():
    letter = buried(replace(RECORD, timestamp_ms=None), replace(DEATH, message="ü" * 2000))
    message = header_text(letter.headers, names.MESSAGE) or ""
    assert set(message) == {"ü"}
    assert len(message.encode()) <= names.MAX_MESSAGE_BYTES
    assert header_text(letter.headers, names.TIMESTAMP) == ""
