"""The ledger: what is written is read again by anybody, whatever happened to the writer."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.chaos.facts import KINDS, Ended, Fact, Settled, Started, from_json, to_json
from bench.chaos.ledger import Ledger, Reader, read

facts = st.one_of([st.builds(kind) for kind in KINDS.values()])


@given(facts)
def test_a_fact_is_the_same_after_it_was_written_and_read(fact: Fact) -> None:
    assert from_json(to_json(fact)) == fact


def settled(at_ns: int, who: str = "w1") -> Settled:
    return Settled(at_ns=at_ns, who=who, claim_id=f"c{at_ns}", state="done")


def test_facts_of_several_writers_come_in_the_order_of_time(tmp_path: Path) -> None:
    with Ledger(tmp_path, "one") as one, Ledger(tmp_path, "other") as other:
        one.write(settled(3))
        other.write(settled(2))
        one.write(settled(1))
    assert [fact.at_ns for fact in read(tmp_path)] == [1, 2, 3]


def test_a_second_incarnation_appends_to_what_the_first_has_said(tmp_path: Path) -> None:
    for at_ns in (1, 2):
        with Ledger(tmp_path, "w1") as ledger:
            ledger.write(settled(at_ns))
    assert len(read(tmp_path)) == 2


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_a_line_that_was_torn_by_a_kill_is_left_out_and_the_rest_is_read(tmp_path: Path, cut: int) -> None:
    with Ledger(tmp_path, "w1") as ledger:
        ledger.write(settled(1))
        ledger.write(settled(2))
    path = tmp_path / "w1.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    assert read(tmp_path) == [settled(1)]


def test_a_reader_tells_each_fact_once_and_a_half_written_one_when_it_is_whole(tmp_path: Path) -> None:
    reader, path = Reader(tmp_path), tmp_path / "w1.jsonl"
    with Ledger(tmp_path, "w1") as ledger:
        ledger.write(settled(1))
        whole = path.read_bytes()
        assert reader.news() == [settled(1)]
        path.write_bytes(whole + whole[:10])
        assert reader.news() == []
        path.write_bytes(whole + whole)
        assert reader.news() == [settled(1)]


def test_every_kind_of_fact_is_known_by_its_name() -> None:
    assert {Started, Ended} <= set(KINDS.values())
    assert all(KINDS[kind.__name__] is kind for kind in KINDS.values())
