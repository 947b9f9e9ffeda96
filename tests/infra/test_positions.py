"""Where a group begins when the broker knows no position, against a plain model of what happened to it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.positions import TopicHistory, beginning, position_lost, position_out_of_range

RULES = st.sampled_from(["earliest", "latest"])


@pytest.mark.parametrize("rule", ["earliest", "latest"])
@pytest.mark.parametrize(
    ("history", "partition", "begins"),
    [
        (TopicHistory(), 0, "by the rule"),
        (TopicHistory(3), 2, "by the rule"),
        (TopicHistory(3, frozenset({0})), 2, "by the rule"),
        (TopicHistory(3, frozenset({0})), 0, "lost"),
        (TopicHistory(3), 3, "earliest"),
        (TopicHistory(3, frozenset({0, 1, 2})), 3, "earliest"),
        (TopicHistory(3, frozenset({3})), 3, "lost"),
        (TopicHistory(None, frozenset({0})), 0, "lost"),
        (TopicHistory(None, frozenset({0})), 1, "earliest"),
    ],
)
def test_an_old_group_is_no_new_one_and_a_partition_that_came_later_is_read_whole(
    history: TopicHistory, partition: int, begins: str, rule: str
):
    """P1, case 13."""
    assert beginning(partition, history, rule=rule) == (rule if begins == "by the rule" else begins)


@given(
    first=st.integers(1, 6),
    steps=st.lists(st.tuples(st.sampled_from(["grow", "commit"]), st.integers(0, 9)), max_size=20),
    rule=RULES,
)
def test_the_rule_for_new_groups_is_asked_only_about_partitions_that_were_there_when_the_group_was_new(first, steps, rule):
    partitions, committed = first, set()
    for what, number in steps:
        partitions += what == "grow" and number % 3
        if what == "commit" and number < partitions:
            committed.add(number)
        history = TopicHistory(first, frozenset(committed))
        for partition in range(partitions):
            expected = "lost" if partition in committed else rule if partition < first else "earliest"
            assert beginning(partition, history, rule=rule) == expected


def test_what_stops_a_worker_names_the_command_that_mends_it():
    command = "sluice offsets set --group g --topic t --partition 3 --to earliest --because"
    for error, code in [
        (position_lost("g", "t", 3), "offset_lost"),
        (position_out_of_range("g", "t", 3, position=7, begin=9, end=20), "offset_out_of_range"),
    ]:
        assert error.reason_code == code
        assert command in str(error)


@pytest.mark.parametrize(
    ("position", "begin", "end", "says"),
    [
        (7, 9, 20, "deleted before they were read"),
        (7, 0, 5, "ends at 5"),
        (7, None, None, "not in the log"),
        (7, 0, 9, "not in the log"),
    ],
)
def test_a_position_outside_the_log_is_told_with_the_side_it_is_on(position, begin, end, says):
    assert says in str(position_out_of_range("g", "t", 0, position=position, begin=begin, end=end))
