"""Whatever is done to the outcomes on the topic, the chain says so and where."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from flows.approvals.chain import Cut, Fault, Findings, Written
from infra.redis.chain import Head
from tests.flows.approvals.audits import verify
from topics.chain import GENESIS, digest_of, linked, on_the_wire
from topics.envelope import fact_id
from topics.events import ApprovalAccepted, ApprovalExecuted, ApprovalExpired, ApprovalRefused

BEGAN = datetime(2026, 11, 30, 12, tzinfo=UTC)


def outcome(number: int) -> Any:
    about = {"approval_id": f"a{number}", "thread_id": f"T-{number % 3}"}
    match number % 4:
        case 0:
            return ApprovalExpired(**about)
        case 1:
            return ApprovalAccepted(**about, decision_id=f"d{number}", decision="approve", approver="mia")
        case 2:
            return ApprovalExecuted(
                **about, tool="refund", arguments={"cents": number}, args_digest="d", status="ok", result="Füße 🙈"
            )
        case _:
            return ApprovalRefused(**about, decision_id=f"d{number}", code="late")


def records(count: int, tenant: str = "acme", *, every_s: float = 1.0) -> list[Written]:
    """A tenant's outcomes over three partitions."""
    found: list[Written] = []
    previous = GENESIS
    for number in range(1, count + 1):
        at = BEGAN + timedelta(seconds=number * every_s)
        placed: Any = linked(outcome(number), tenant=tenant, number=number, previous=previous, at=at)
        previous = placed.chain.digest
        where = f"approvals.outcomes/{number % 3}/{number}"
        event_id = fact_id(placed, tenant=tenant) or ""
        found.append(Written(where, number % 3, tenant, event_id, placed.TYPE, on_the_wire(placed)))
    return found


def head_of(found: Sequence[Written], *, untold: frozenset[int] = frozenset()) -> dict[str, Head]:
    link = (found[-1].wire or {})["chain"]
    return {"acme": Head(link["number"], link["digest"], untold)}


def changed(record: Written, **fields: Any) -> Written:
    return replace(record, wire={**(record.wire or {}), **fields})


def the_fault(findings: Findings) -> Fault:
    assert findings.faults
    return findings.faults[0]


def test_a_whole_chain_is_proven_whatever_the_order_of_its_records_and_however_often_they_are_there():
    """Two workers overtake each other, a redelivery publishes again: that is how logs are."""
    found = records(12)
    for order in (found, found[::-1], found[6:] + found + found[:3]):
        findings = verify(order, before=head_of(found), after=head_of(found))
        assert (findings.faults, findings.proofs["acme"].first, findings.proofs["acme"].last) == ((), 1, 12)


def test_tenants_have_chains_of_their_own():
    findings = verify([*records(3), *records(5, "globex")])
    assert {tenant: proof.last for tenant, proof in findings.proofs.items()} == {"acme": 3, "globex": 5}
    moved = [replace(one, tenant="globex") for one in records(3)]
    assert [fault.what for fault in verify(moved).faults] == ["its content is not what was linked"] * 3


def test_a_changed_word_is_found_at_its_record():
    found = records(8)
    found[4] = changed(found[4], approver="mallory")
    fault = the_fault(verify(found))
    assert (fault.number, fault.where, fault.event_id) == (5, found[4].where, found[4].event_id)
    assert fault.what == "its content is not what was linked"


def test_a_record_left_out_is_found_behind_its_place():
    found = records(8)
    fault = the_fault(verify(found[:3] + found[4:]))
    assert (fault.number, fault.what) == (5, "number 4 before it is missing")
    assert "numbers 4 to 6" in the_fault(verify(found[:3] + found[6:])).what
    assert "2 numbers from 2 to 4" not in str(verify(found).faults)


def test_records_that_swap_places_say_the_same():
    found = records(8)
    assert verify([*found[:2], found[6], *found[3:6], found[2], found[7]]).faults == ()


def test_numbers_swapped_between_two_records_are_found():
    found = records(8)
    links = [(one.wire or {})["chain"] for one in found]
    found[2], found[6] = changed(found[2], chain=links[6]), changed(found[6], chain=links[2])
    assert {fault.number for fault in verify(found).faults} >= {3, 7}


def written_anew(found: Sequence[Written], number: int) -> Written:
    """Another outcome in the place of one, with a digest that is right for it."""
    link = (found[number - 1].wire or {})["chain"]
    at = datetime.fromisoformat(link["at"])
    other: Any = linked(outcome(20), tenant="acme", number=number, previous=link["previous"], at=at)
    return replace(found[number - 1], event_type=other.TYPE, wire=on_the_wire(other))


@pytest.mark.parametrize("number", [1, 4, 7])
def test_an_outcome_written_anew_does_not_fit_the_next_one(number: int):
    """Everybody can compute a digest; nobody can make the next link hold it."""
    found = records(8)
    forged = [*found[: number - 1], written_anew(found, number), *found[number:]]
    (fault,) = verify(forged).faults
    assert (fault.number, fault.what) == (number + 1, f"it does not follow what stands before it, number {number}")


def test_a_chain_begins_with_nothing_before_it():
    first: Any = linked(outcome(1), tenant="acme", number=1, previous="11" * 32, at=BEGAN)
    alone = Written("o/0/0", 0, "acme", "x", first.TYPE, on_the_wire(first))
    assert the_fault(verify([alone])).what == "it does not follow what stands before it, number 0"


def test_two_outcomes_with_one_number_are_a_fork():
    found = records(6)
    previous = (found[3].wire or {})["chain"]["digest"]
    other: Any = linked(outcome(20), tenant="acme", number=5, previous=previous, at=BEGAN)
    fork = Written("approvals.outcomes/0/99", 0, "acme", "x", other.TYPE, on_the_wire(other))
    fault = the_fault(verify([*found, fork]))
    assert (fault.number, fault.where) == (5, fork.where)
    assert "a second outcome has the number 5" in fault.what


def test_an_end_that_is_cut_off_or_put_on_is_found_by_redis_s_head():
    found = records(8)
    assert verify(found[:6]).faults == (), "the topic alone cannot know"
    fault = the_fault(verify(found[:6], before=head_of(found)))
    assert (fault.number, fault.where, "numbers 7 to 8" in fault.what) == (7, found[5].where, True)
    assert "written by somebody else" in the_fault(verify(found, before=head_of(found[:6]), after=head_of(found[:6]))).what
    assert verify(found, before=head_of(found[:6]), after=head_of(found)).faults == (), "written while we looked"
    everything = the_fault(verify([], before=head_of(found)))
    assert "numbers 1 to 8" in everything.what
    assert "has no chain" in the_fault(verify(found, before={}, after={})).what


def test_what_is_given_while_the_topic_is_read_need_not_be_there_yet():
    """A partition is read to its end of now, and another a little longer: number 6 lies behind the end of its own."""
    found = records(7)
    given, later = head_of(found[:5]), head_of(found)
    findings = verify([*found[:5], found[6]], before=given, after=later)
    assert (findings.faults, findings.proofs["acme"].last) == ((), 5)
    assert [fault.number for fault in verify([*found[:3], found[4], found[6]], before=given, after=later).faults] == [5]
    assert verify([found[1]], before={}, after=later).faults == (), "a tenant that began meanwhile"


def test_a_chain_written_anew_is_found_by_redis_s_head():
    """Everybody can compute digests: only the head says which chain is the one that was written."""
    anew = records(8, every_s=2.0)
    assert verify(anew).faults == ()
    assert "another digest" in the_fault(verify(anew, before=head_of(records(8)))).what


def test_what_is_on_its_way_to_the_topic_is_no_fault():
    found = records(8)
    findings = verify(found[:4] + found[5:7], before=head_of(found, untold=frozenset({5, 8})))
    assert (findings.faults, findings.proofs["acme"].untold) == ((), (5, 8))


def test_what_retention_took_is_told_and_the_rest_is_proven():
    found = records(30, every_s=3600.0)
    # Partition 1 begins with number 10, the others with what they began with.
    left = [one for number, one in enumerate(found, start=1) if number % 3 != 1 or number >= 10]
    cut = Cut(1, until=BEGAN + timedelta(hours=10))
    findings = verify(left, cuts=[cut], before=head_of(found), after=head_of(found))
    assert (findings.faults, findings.proofs["acme"].first, findings.proofs["acme"].last) == ((), 8, 30)
    assert verify(left).faults, "nothing was cut: records are missing"
    late = [one for one in left if (one.wire or {})["chain"]["number"] != 20]
    assert [fault.number for fault in verify(late, cuts=[cut]).faults] == [21], "cut before it was written"
    assert verify([], cuts=[cut], before=head_of(found)).faults == ()


@pytest.mark.parametrize("chain", [None, 7, {}, {"number": 1}, {"number": "1", "previous": GENESIS, "digest": "x", "at": "y"}])
def test_an_outcome_without_a_link_is_nobody_s(chain: Any):
    found = records(3)
    stranger = changed(found[1], chain=chain)
    assert the_fault(verify([found[0], found[2], stranger])).event_id == stranger.event_id


def on_its_own(**link: Any) -> Written:
    """What anybody may write to the topic: any link, with the digest that is right for it."""
    wire = on_the_wire(linked(outcome(3), tenant="acme", number=1, previous=GENESIS, at=BEGAN))
    wire["chain"] |= link
    wire["chain"]["digest"] = digest_of(wire, event_type=ApprovalRefused.TYPE, tenant="acme")
    return Written("approvals.outcomes/0/99", 0, "acme", "x", ApprovalRefused.TYPE, wire)


@pytest.mark.parametrize("number", ["1", True, 1.0, 0, -1, 2**53 - 1])
def test_no_number_of_a_stranger_ends_the_audit(number: Any):
    """Neither one that is none, nor one so large that what it leaves out cannot be listed."""
    found = records(3)
    stranger = on_its_own(number=number)
    assert verify([stranger]).faults
    findings = verify([*found, stranger], before=head_of(found), after=head_of(found))
    assert [fault.where for fault in findings.faults] == [stranger.where]
    assert verify([*found, stranger], cuts=[Cut(0, until=None)]).proofs


def test_no_instant_of_a_stranger_ends_the_audit():
    found, last = records(3), datetime.max.replace(tzinfo=UTC)
    assert verify([found[0], found[2]], cuts=[Cut(0, until=last)]).faults == ()
