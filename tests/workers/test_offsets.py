"""Where a group is to go on, and what that means for its records."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.kafka.offsets import PartitionPositions
from infra.positions import TopicHistory
from infra.settings import load_settings
from topics.errors import RejectedError
from workers.app import WORKERS
from workers.offsets import change, chosen, groups, parse_target


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("17", 17),
        ("at:2026-05-01T12:00:00Z", datetime(2026, 5, 1, 12, tzinfo=UTC)),
        ("at:2026-05-01T12:00:00+05:45", datetime(2026, 5, 1, 6, 15, tzinfo=UTC)),
    ],
)
def test_a_target_is_an_end_a_position_or_an_instant(text, target):
    assert parse_target(text) == target


@pytest.mark.parametrize(
    "text", ["", "begin", "-1", "at:", "at:2026-05-01T12:00:00", "at:yesterday", "at:17", "2026-05-01T12:00:00Z"]
)
def test_anything_else_is_refused_an_instant_without_a_zone_above_all(text):
    with pytest.raises(RejectedError, match="--to wants"):
        parse_target(text)


@given(begin=st.integers(0, 50), length=st.integers(0, 50), committed=st.none() | st.integers(0, 120), after=st.integers(0, 120))
def test_a_change_counts_what_is_skipped_and_what_is_read_again(begin, length, committed, after):
    one = PartitionPositions("t", 0, committed, begin, begin + length)
    log = set(range(begin, begin + length))
    if not begin <= after <= begin + length:
        with pytest.raises(RejectedError, match="positions from"):
            change(one, after)
        return
    told = change(one, after)
    would_be_read = {offset for offset in log if offset >= (begin if committed is None else committed)}
    is_read = {offset for offset in log if offset >= after}
    assert (told.skips, told.again) == (len(would_be_read - is_read), len(is_read - would_be_read))


@pytest.mark.parametrize(
    ("committed", "history", "state"),
    [
        (None, TopicHistory(), "new"),
        (None, TopicHistory(1, frozenset({1})), "new"),
        (None, TopicHistory(1, frozenset({0})), "lost"),
        (4, TopicHistory(), "out_of_range"),
        (5, TopicHistory(), "ok"),
        (9, TopicHistory(), "ok"),
        (10, TopicHistory(), "out_of_range"),
    ],
)
def test_a_standing_says_what_a_worker_would_make_of_it(committed, history, state):
    assert PartitionPositions("t", 0, committed, 5, 9).state(history) == state


def test_what_is_not_read_cannot_be_chosen():
    found = [PartitionPositions("t", number, None, 0, 0) for number in (0, 1)]
    assert chosen(found, topic=None, partition=None) == found
    assert chosen(found, topic="t", partition=1) == found[1:]
    for topic, partition in (("x", None), ("t", 2), (None, 1)):
        with pytest.raises(RejectedError):
            chosen(found, topic=topic, partition=partition)


def test_every_worker_has_its_group():
    assert list(groups(load_settings(group_prefix="g", topic_prefix="p."))) == [f"g.{name}" for name in WORKERS]
    assert groups(load_settings(topic_prefix="p."))["sluice.query"] == ["p.queries", "p.queries.replay"]
