from hypothesis import given
from hypothesis import strategies as st

from infra.kafka.watermark import Watermark


def test_nothing_delivered_means_nothing_to_commit():
    assert Watermark().next_position() is None


def test_an_unfinished_record_holds_the_position_below_finished_ones():
    mark = Watermark()
    for offset in (5, 6, 7):
        assert mark.add(offset)
    mark.finish(6)
    mark.finish(7)
    assert mark.next_position() == 5
    mark.finish(5)
    assert mark.next_position() == 8


def test_a_record_that_was_delivered_is_not_taken_twice():
    mark = Watermark()
    assert mark.add(3)
    assert not mark.add(3)
    assert not mark.add(2)


def test_what_is_for_nobody_is_passed_and_unfinished_work_is_not():
    """Case 7: the last position of a log may be a transaction's marker."""
    mark = Watermark()
    mark.reach(3)
    assert mark.next_position() == 3
    assert mark.add(3)
    mark.reach(9)
    assert mark.next_position() == 3
    mark.finish(3)
    assert mark.next_position() == 9
    mark.reach(5)
    assert (mark.next_position(), mark.add(8), mark.add(9)) == (9, False, True)


@given(gaps=st.lists(st.integers(1, 4), min_size=1, max_size=40), data=st.data())
def test_the_position_is_always_the_lowest_unfinished_record(gaps: list[int], data: st.DataObject):
    """P6, against the plainest model there is."""
    mark, offset, pending, last = Watermark(), 0, set(), None
    for gap in gaps:
        offset += gap
        mark.add(offset)
        pending.add(offset)
        last = offset
        for done in data.draw(st.sets(st.sampled_from(sorted(pending)))):
            mark.finish(done)
            pending.discard(done)
        assert mark.next_position() == (min(pending) if pending else last + 1)
        assert mark.unfinished() == len(pending)
        assert mark.span() == (last + 1 - min(pending) if pending else 0)
