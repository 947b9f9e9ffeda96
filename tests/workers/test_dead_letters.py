"""The operators' view of dead letters and the way back. Case 31 without a broker."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.kafka import dead_letter as names
from infra.kafka.dead_letter import Death, dead_letter, header_text, original_headers
from tests.infra.kafka.test_dead_letter import DEATH, some_headers
from topics.catalogue import SPECS, Catalogue
from topics.envelope import decode, encode
from topics.records import Headers, OutboundRecord, RawRecord
from workers import dead_letters
from workers.dead_letters import (
    MAX_REPLAYS,
    DeadLetter,
    Filter,
    ReplayRefusedError,
    edited_record,
    replay_record,
    resolution,
    select,
    view,
    went_back_first,
)
from workers.edits import EditRefusedError, edit_of, sha256

CATALOGUE = Catalogue()
NOW = datetime(2025, 6, 1, 10, tzinfo=UTC)
EDITED = b'{"thread_id":"t","text":"hello"}'
QUESTION: Headers = (("ce_id", b"q1"), ("ce_type", b"query.asked"), ("ce_tenant", b"acme"))


def record(topic: str = "queries", offset: int = 7, *, headers: Headers = QUESTION) -> RawRecord:
    return RawRecord(topic, 2, offset, b"acme/t", b'{"thread_id":"t","text":"hi"}', headers, 500)


def arrived(out: OutboundRecord, offset: int = 0) -> RawRecord:
    return RawRecord(out.topic, 0, offset, out.key, out.value, out.headers, 900)


def died(one: RawRecord, death: Death = DEATH) -> RawRecord:
    return arrived(dead_letter(one, death, topic="dead-letters"))


def with_header(one: RawRecord, name: str, value: bytes | None) -> RawRecord:
    """A dead letter as a faulty or hostile writer leaves it."""
    kept = tuple(header for header in one.headers if header[0] != name)
    return replace(one, headers=kept if value is None else (*kept, (name, value)))


async def letters(*records: RawRecord) -> list[DeadLetter]:
    async def read(all_: Iterable[RawRecord]) -> AsyncIterator[RawRecord]:
        for one in all_:
            yield one

    return await view(read(records), catalogue=CATALOGUE)


async def letter_of(*records: RawRecord) -> DeadLetter:
    (found,) = await letters(*records)
    return found


def resolved(letter: DeadLetter, action: Any = "replayed", *, now: datetime = NOW, reason: str = "mended") -> RawRecord:
    payload = resolution(letter, action=action, operator="ops", reason=reason, now=now)
    return arrived(encode(payload, catalogue=CATALOGUE, tenant="operators", source="s", now=now, ordinal="0"))


def edited(letter: DeadLetter, value: bytes = EDITED, *, offset: int = 0, actor: str = "ops") -> RawRecord:
    return arrived(edited_record(letter, value, catalogue=CATALOGUE, actor=actor), offset)


async def first_of(*records: RawRecord) -> dict[str, RawRecord]:
    async def read() -> AsyncIterator[RawRecord]:
        for one in records:
            yield one

    return await went_back_first(read())


def back(letter: DeadLetter) -> RawRecord:
    return arrived(replay_record(letter, catalogue=CATALOGUE, actor="ops"))


async def test_each_record_goes_back_to_its_own_input_only():
    """Case 31: interleaved letters of three inputs."""
    inputs = ["tickets", "queries", "approvals.decisions"]
    found = await letters(*(died(record(inputs[n % 3], n)) for n in range(9)))
    assert len(found) == 9
    for letter in found:
        out = replay_record(letter, catalogue=CATALOGUE, actor="ops")
        assert out.topic == f"{letter.topic}.replay"
        assert (out.key, out.value, original_headers(out.headers)) == (b"acme/t", b'{"thread_id":"t","text":"hi"}', QUESTION)


async def test_replays_are_counted_up_to_the_limit_and_the_first_failure_stays():
    first = died(record())
    letter, history = await letter_of(first), [first]
    for count in range(1, MAX_REPLAYS + 1):
        assert (letter.state, letter.replays) == ("open", count - 1)
        history.append(resolved(letter))
        assert (await letter_of(*history)).state == "replayed"
        again = back(letter)
        assert header_text(again.headers, names.REPLAY_COUNT) == str(count)
        assert header_text(again.headers, names.REPLAY_ID) == f"{letter.id}:{count}"
        history.append(died(again, replace(DEATH, first_failed_at_ms=9_999, last_failed_at_ms=3_000 + count)))
        letter = await letter_of(*history)
        assert (letter.topic, letter.partition, letter.offset) == ("queries", "2", "7")
        assert (letter.first_failed_at_ms, letter.last_failed_at_ms) == ("1000", str(3_000 + count))
        assert letter.original_headers == QUESTION
    assert letter.state == "exhausted"
    with pytest.raises(ReplayRefusedError) as caught:
        replay_record(letter, catalogue=CATALOGUE, actor="ops")
    assert caught.value.reason_code == "exhausted"


async def test_the_view_is_the_same_in_whatever_order_the_topics_are_read():
    first = died(record())
    letter = await letter_of(first)
    second = died(back(letter))
    later = await letter_of(first, second)
    history = [first, resolved(letter), second, resolved(later, "discarded", now=NOW + timedelta(seconds=1))]
    views = [await letter_of(*order) for order in permutations(history)]
    assert {(one.state, one.replays) for one in views} == {("discarded", 1)}


@pytest.mark.parametrize(
    ("count", "replays"), [(b"abc", MAX_REPLAYS), (None, 0), (b"-1", MAX_REPLAYS), (b"999999999999", MAX_REPLAYS)]
)
async def test_a_count_that_cannot_be_read_is_the_limit_and_not_zero(count: bytes | None, replays: int):
    letter = await letter_of(with_header(died(record()), names.REPLAY_COUNT, count))
    assert letter.replays == replays
    assert letter.state == ("exhausted" if replays else "open")


@settings(max_examples=25)
@given(junk=st.binary(max_size=6) | st.sampled_from([b"9" * 5000, "\u00b2".encode(), b"9" * 18, b"1e5"]))
@pytest.mark.parametrize("name", [names.REPLAY_COUNT, names.LAST_FAILED_AT, names.FIRST_FAILED_AT, names.OFFSET, names.TIMESTAMP])
def test_one_odd_letter_does_not_hide_the_others(name: str, junk: bytes):
    async def check() -> None:
        found = await letters(with_header(died(record(offset=1)), name, junk), died(record(offset=2)))
        assert len(found) == 2
        for letter in found:
            dead_letters.instant(letter.last_failed_at_ms)
            dead_letters.instant(letter.first_failed_at_ms)
            Filter(since_ms=5).matches(letter)

    asyncio.run(check())


@pytest.mark.parametrize("topic", ["payments", "answers", "dead-letters", "queries.replay", "", "staging.queries"])
async def test_only_inputs_of_ours_take_a_replay(topic: str):
    letter = await letter_of(with_header(died(record()), names.TOPIC, topic.encode()))
    with pytest.raises(ReplayRefusedError) as caught:
        replay_record(letter, catalogue=CATALOGUE, actor="ops")
    assert caught.value.reason_code == "not_allowed"


async def test_every_input_takes_a_replay_under_a_prefix_too():
    staging = Catalogue("staging.")
    for spec in SPECS:
        letter = await letter_of(died(record(f"staging.{spec.name}")))
        if spec.direction == "in":
            assert replay_record(letter, catalogue=staging, actor="ops").topic == f"staging.{spec.name}.replay"
        else:
            with pytest.raises(ReplayRefusedError):
                replay_record(letter, catalogue=staging, actor="ops")


async def test_a_letter_without_its_position_cannot_go_back():
    """Its replay would be a record without an origin, and die again and again."""
    letter = await letter_of(with_header(died(record()), names.OFFSET, b"x"))
    with pytest.raises(ReplayRefusedError):
        replay_record(letter, catalogue=CATALOGUE, actor="ops")


async def test_a_replay_that_runs_twice_is_one_piece_of_work():
    """P2: the inbox knows the replay by its id."""
    letter = await letter_of(died(record()))
    one, other = decode(back(letter), catalogue=CATALOGUE), decode(back(letter), catalogue=CATALOGUE)
    assert one.claim_id == other.claim_id
    assert one.claim_id != decode(record(), catalogue=CATALOGUE).claim_id
    assert one.id == "q1"


async def test_what_went_back_or_was_given_up_goes_back_no_more():
    first = died(record())
    letter = await letter_of(first)
    for action, state in (("replayed", "replayed"), ("discarded", "discarded")):
        ended = await letter_of(first, resolved(letter, action))
        assert ended.state == state
        with pytest.raises(ReplayRefusedError) as caught:
            replay_record(ended, catalogue=CATALOGUE, actor="ops")
        assert caught.value.reason_code == state


@pytest.mark.parametrize("reason", ["", "  "])
async def test_a_discard_needs_a_reason(reason: str):
    letter = await letter_of(died(record()))
    with pytest.raises(ReplayRefusedError) as caught:
        resolved(letter, "discarded", reason=reason)
    assert caught.value.reason_code == "reason_missing"


@given(headers=some_headers)
def test_the_way_back_keeps_every_header_of_the_producer(headers: Headers):
    async def check() -> None:
        letter = await letter_of(died(record(headers=headers)))
        assert letter.original_headers == headers
        out = replay_record(letter, catalogue=CATALOGUE, actor="ops")
        assert original_headers(out.headers) == headers == out.headers[: len(headers)]

    asyncio.run(check())


async def test_filters_choose_by_every_part_that_is_set():
    found = await letters(
        died(record(offset=1)),
        died(record("tickets", 2), replace(DEATH, code="unexpected", tenant="globex", last_failed_at_ms=9_000)),
    )
    by_topic = {letter.topic: letter for letter in found}
    question, ticket = by_topic["queries"], by_topic["tickets"]
    cases: list[tuple[Filter, list[DeadLetter]]] = [
        (Filter(), [question, ticket]),
        (Filter(ids=(ticket.id,)), [ticket]),
        (Filter(reason="unexpected"), [ticket]),
        (Filter(tenant="acme"), [question]),
        (Filter(topic="tickets", tenant="acme"), []),
        (Filter(since_ms=5_000), [ticket]),
    ]
    for wanted, expected in cases:
        assert select(found, wanted) == expected
    assert select(found, Filter(), states=("exhausted",)) == []


async def test_records_of_others_on_the_topics_are_passed_over():
    junk = RawRecord("dead-letters", 0, 0, None, b"\xff", (("a", None),))
    forged = replace(died(record()), topic="dead-letters.resolutions")
    broken = RawRecord("dead-letters.resolutions", 0, 0, None, b"\xff")
    assert await letters(junk, forged, broken) == []


async def test_an_edit_goes_back_by_the_same_rules_and_keeps_key_headers_and_origin():
    letter = await letter_of(died(record()))
    out, plain = (
        edited_record(letter, EDITED, catalogue=CATALOGUE, actor="ops"),
        replay_record(letter, catalogue=CATALOGUE, actor="ops"),
    )
    assert (out.topic, out.key, out.value) == (plain.topic, plain.key, EDITED)
    assert out.headers[:-1] == plain.headers
    assert header_text(out.headers, names.REPLAY_EDITED) == sha256(letter.record.value)
    assert original_headers(out.headers) == QUESTION
    assert decode(edited(letter), catalogue=CATALOGUE).payload.text == "hello"


@pytest.mark.parametrize(
    ("value", "code"), [(b"never JSON", "bad_json"), (b'{"text":"no thread"}', "bad_payload"), (b"", "empty_body")]
)
async def test_an_edit_that_would_die_at_once_is_refused(value: bytes, code: str):
    letter = await letter_of(died(record()))
    with pytest.raises(EditRefusedError) as caught:
        edited(letter, value)
    assert caught.value.reason_code == code


async def test_an_edit_is_no_way_round_the_loop_guard_or_the_targets():
    spent = await letter_of(with_header(died(record()), names.REPLAY_COUNT, str(MAX_REPLAYS).encode()))
    foreign = await letter_of(with_header(died(record()), names.TOPIC, b"payments"))
    for letter, code in ((spent, "exhausted"), (foreign, "not_allowed")):
        with pytest.raises(ReplayRefusedError) as caught:
            edited(letter)
        assert caught.value.reason_code == code


async def test_an_edited_and_an_unedited_replay_are_one_piece_of_work_and_the_first_on_the_topic_counts():
    """P2: whoever sends what, at once or after a kill, the inbox knows one id."""
    letter = await letter_of(died(record()))
    mine, other, plain = (
        edited(letter, offset=4),
        edited(letter, b'{"thread_id":"t","text":"no"}', offset=3),
        replace(back(letter), offset=7),
    )
    assert len({decode(one, catalogue=CATALOGUE).claim_id for one in (mine, other, plain)}) == 1
    for order in permutations([mine, other, plain]):
        assert await first_of(*order, record()) == {letter.replay_id: other}


async def test_what_was_edited_is_kept_with_the_letter_whatever_resolution_is_read_last():
    first = died(record())
    letter = await letter_of(first)
    edit = edit_of(letter.record.value, EDITED)
    payload = resolution(letter, action="replayed", operator="ops", reason="a typing error", now=NOW, edit=edit)
    told = arrived(encode(payload, catalogue=CATALOGUE, tenant="operators", source="s", now=NOW, ordinal="0"))
    unaware = resolved(letter, now=NOW + timedelta(seconds=5))
    for order in permutations([first, told, unaware]):
        found = await letter_of(*order)
        assert (found.state, found.edit) == ("replayed", edit)


@pytest.mark.parametrize("reason", ["", "  "])
async def test_an_edit_needs_a_reason(reason: str):
    letter = await letter_of(died(record()))
    with pytest.raises(ReplayRefusedError, match="an edit needs a reason"):
        resolution(letter, action="replayed", operator="ops", reason=reason, now=NOW, edit=edit_of(letter.record.value, EDITED))


async def test_an_edited_value_that_dies_again_is_shown_as_an_operator_s():
    letter = await letter_of(died(record()))
    again = await letter_of(died(edited(letter)))
    assert (again.id, again.replays, again.record.value, again.is_edited) == (letter.id, 1, EDITED, True)
    assert again.original_headers == QUESTION
    assert not letter.is_edited
    forged = await letter_of(died(record(headers=(*QUESTION, (names.REPLAY_EDITED, b"x")))))
    assert not forged.is_edited, "a producer's header of that name is none of ours"
