"""Any single change to the records of the topic is found, byte by byte."""

import json
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from flows.approvals.chain import Findings
from infra.redis.chain import Head
from tests.fakes.chain import AT
from tests.flows.approvals.audits import verify
from topics.catalogue import Catalogue
from topics.chain import GENESIS, digest_of, linked
from topics.envelope import encode
from topics.events import ApprovalAccepted, ApprovalExecuted, ApprovalExpired, ApprovalRefused, Verdict
from topics.records import RawRecord
from workers.audit import read

CATALOGUE = Catalogue()
# What the chain covers of a record's headers. Time of publication, source and trace are the transport's: they differ each time.
COVERED = ("ce_id", "ce_type", "ce_tenant")
WON = Verdict(decision_id="d0", decision="edit", approver="kim", arguments={"cents": 10.5, "note": "ü"})


def outcome(number: int) -> Any:
    about = {"approval_id": f"a{number}", "thread_id": f"T-{number % 3}"}
    done = {"tool": "refund", "arguments": {"cents": number}, "args_digest": "d", "status": "ok", "result": "Füße 🙈"}
    match number % 4:
        case 0:
            return ApprovalExpired(**about)
        case 1:
            return ApprovalAccepted(**about, decision_id=f"d{number}", decision="approve", approver="mia")
        case 2:
            return ApprovalExecuted.model_validate(about | done)
        case _:
            return ApprovalRefused(**about, decision_id=f"d{number}", code="late", winner=WON)


def topic(count: int) -> tuple[list[RawRecord], dict[str, Head]]:
    """Outcomes as a worker writes them, and what Redis knows."""
    records: list[RawRecord] = []
    previous = GENESIS
    for number in range(1, count + 1):
        placed: Any = linked(outcome(number), tenant="acme", number=number, previous=previous, at=AT + timedelta(seconds=number))
        previous = placed.chain.digest
        sent = encode(placed, catalogue=CATALOGUE, tenant="acme", source="sluice/approvals", now=AT, ordinal="0")
        records.append(RawRecord(sent.topic, number % 3, number // 3, sent.key, sent.value, sent.headers))
    return records, {"acme": Head(count, previous)}


def findings(records: list[RawRecord], heads: dict[str, Head]) -> Findings:
    return verify([read(record, catalogue=CATALOGUE) for record in records], before=heads, after=heads)


def flipped(text: bytes | None, place: int, bit: int) -> bytes:
    changed = bytearray(text or b"")
    changed[place % len(changed)] ^= 1 << bit
    return bytes(changed)


def test_what_workers_write_is_proven():
    records, heads = topic(9)
    found = findings(records, heads)
    assert (found.faults, found.records, found.proofs["acme"].last) == ((), 9, 9)


@given(count=st.integers(1, 8), one=st.integers(0, 99), place=st.integers(0, 9_999), bit=st.integers(0, 7))
def test_one_flipped_bit_of_content_or_key_is_found_at_its_record(count: int, one: int, place: int, bit: int):
    records, heads = topic(count)
    record = records[one % count]
    for changed in (
        replace(record, value=flipped(record.value, place, bit)),
        replace(record, key=flipped(record.key, place, bit)),
    ):
        found = findings([changed if other is record else other for other in records], heads)
        same = False
        with suppress(ValueError):
            same = changed.key == record.key and json.loads(changed.value or b"") == json.loads(record.value or b"")
        assert same or changed.position in {fault.where for fault in found.faults}


@given(
    count=st.integers(1, 8), one=st.integers(0, 99), place=st.integers(0, 99), bit=st.integers(0, 7), name=st.sampled_from(COVERED)
)
def test_one_flipped_bit_of_what_says_whose_and_which_it_is_is_found(count: int, one: int, place: int, bit: int, name: str):
    records, heads = topic(count)
    record = records[one % count]
    headers = tuple((key, flipped(value, place, bit) if key == name else value) for key, value in record.headers)
    changed = replace(record, headers=headers)
    found = findings([changed if other is record else other for other in records], heads)
    assert changed.position in {fault.where for fault in found.faults}


@given(
    count=st.integers(2, 8), one=st.integers(0, 99), other=st.integers(0, 99), deed=st.sampled_from(["drop", "cut", "swap", "add"])
)
def test_records_left_out_swapped_or_put_in_are_found(count: int, one: int, other: int, deed: str):
    records, heads = topic(count)
    index, second = one % count, other % count
    match deed:
        case "drop":
            del records[index]
        case "cut":
            del records[index:]
        case "swap":  # the contents; that records lie in another order says nothing
            assume(index != second)
            first, last = records[index], records[second]
            records[index], records[second] = replace(first, value=last.value), replace(last, value=first.value)
        case _:
            wire = json.loads(records[index].value or b"")
            wire["chain"]["number"] = count + 1
            records.append(replace(records[index], value=json.dumps(wire).encode()))
    assert findings(records, heads).faults


def test_a_name_that_is_there_twice_is_no_way_to_say_two_things():
    records, heads = topic(3)
    value = (records[1].value or b"").replace(b'{"approval_id"', b'{"status":"error","approval_id"', 1)
    records[1] = replace(records[1], value=value)
    assert [fault.what for fault in findings(records, heads).faults] == ["a name is there twice in it"]


def test_a_stranger_s_bytes_are_named_and_the_rest_is_still_checked():
    records, heads = topic(3)
    stranger = RawRecord("approvals.outcomes", 0, 77, b"acme/T-1", b"?")
    found = findings([*records, stranger], heads)
    assert [fault.where for fault in found.faults] == ["approvals.outcomes/0/77"]
    assert found.proofs["acme"].last == 3


@pytest.mark.parametrize("number", ["1", 1.5, 1e999, 2**70, 2**53 - 1])
def test_no_number_of_a_stranger_s_record_ends_the_audit(number: Any):
    records, heads = topic(3)
    wire = json.loads(records[2].value or b"")
    wire["chain"]["number"] = number
    with suppress(ValueError):
        wire["chain"]["digest"] = digest_of(wire, event_type=ApprovalRefused.TYPE, tenant="acme")
    stranger = replace(records[2], offset=77, value=json.dumps(wire).encode())
    assert [fault.where for fault in findings([*records, stranger], heads).faults] == [stranger.position]
