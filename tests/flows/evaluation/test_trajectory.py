from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.evaluation.tasks import Call
from flows.evaluation.trajectory import follow, same_call

CALLS = st.lists(
    st.builds(lambda tool, value: Call(tool=tool, arguments={"n": value}), st.sampled_from("abc"), st.integers(0, 2)), max_size=6
)
FIND = Call(tool="find", arguments={"zip": "1"})
READ = Call(tool="read", arguments={"order": "#1"})
PAY = Call(tool="pay", arguments={"order": "#1", "amount": 10.0})


def test_a_wrong_tool_is_counted_once_and_never_as_a_wrong_argument():
    found = follow([FIND, READ, PAY], [FIND, Call(tool="other"), PAY], mode="strict")
    assert (found.tools, found.arguments) == (2 / 3, 1.0)
    assert (found.missing, found.extra) == ((READ,), (Call(tool="other"),))


def test_a_wrong_argument_is_never_counted_as_a_wrong_tool():
    wrong = Call(tool="read", arguments={"order": "#2"})
    found = follow([FIND, READ, PAY], [FIND, wrong, PAY], mode="strict")
    assert (found.tools, found.arguments) == (1.0, 2 / 3)
    assert found.wrong_arguments == ((READ, wrong),)


def test_order_matters_where_it_is_strict_and_only_there():
    turned = [READ, FIND, PAY]
    assert follow([FIND, READ, PAY], turned, mode="strict").tools == 2 / 3
    assert follow([FIND, READ, PAY], turned, mode="unordered").tools == 1.0


def test_more_calls_than_wanted_are_wrong_but_in_a_superset():
    more = [FIND, FIND, READ, PAY]
    assert follow([FIND, READ, PAY], more, mode="strict").tools == 3 / 4
    assert follow([FIND, READ, PAY], more, mode="unordered").tools == 3 / 4
    assert follow([FIND, READ, PAY], more, mode="superset").tools == 1.0


def test_of_calls_of_one_tool_each_is_held_against_the_one_it_equals():
    other = Call(tool="read", arguments={"order": "#2"})
    for mode in ("strict", "unordered", "superset"):
        assert follow([READ], [other, READ], mode=mode).arguments == 1.0


def test_amounts_are_compared_to_the_cent_and_words_to_the_letter():
    assert same_call(PAY, Call(tool="pay", arguments={"order": "#1", "amount": 10.004}))
    assert not same_call(PAY, Call(tool="pay", arguments={"order": "#1", "amount": 10.02}))
    assert not same_call(PAY, Call(tool="pay", arguments={"order": "#10", "amount": 10.0}))
    assert not same_call(Call(tool="t", arguments={"n": True}), Call(tool="t", arguments={"n": 1}))


def test_no_calls_are_right_where_none_are_wanted():
    assert follow([], [], mode="strict").tools == 1.0
    assert follow([], [READ], mode="strict").tools == 0.0
    assert follow([READ], [], mode="strict").tools == 0.0


def best_by_trying_all(expected, made):
    """The most pairs of one tool in one order, and of those the most equal ones: by trying every choice."""
    best = (0, 0)
    for size in range(min(len(expected), len(made)) + 1):
        for left in combinations(expected, size):
            for right in combinations(made, size):
                if [one.tool for one in left] == [one.tool for one in right]:
                    best = max(best, (size, sum(map(same_call, left, right))))
    return best


@given(CALLS, CALLS)
def test_strict_order_finds_what_trying_every_choice_finds(expected, made):
    found = follow(expected, made, mode="strict")
    pairs, equal = best_by_trying_all(expected, made)
    assert len(found.pairs) == pairs
    assert sum(same_call(*pair) for pair in found.pairs) == equal


@given(CALLS, CALLS, st.sampled_from(["strict", "unordered", "superset"]))
def test_every_call_is_a_pair_or_missing_or_extra(expected, made, mode):
    found = follow(expected, made, mode=mode)
    assert len(found.pairs) + len(found.missing) == len(expected)
    assert len(found.pairs) + len(found.extra) == len(made)
    assert all(one.tool == other.tool for one, other in found.pairs)
    assert 0 <= found.tools <= 1
    assert 0 <= found.arguments <= 1


@given(CALLS)
def test_the_right_calls_are_right_in_every_mode(expected):
    for mode in ("strict", "unordered", "superset"):
        found = follow(expected, expected, mode=mode)
        assert (found.tools, found.arguments) == pytest.approx((1.0, 1.0))


@given(CALLS, CALLS)
def test_only_the_very_calls_in_their_order_are_right(expected, made):
    found = follow(expected, made, mode="strict")
    assert (found.tools == found.arguments == 1.0) == (len(expected) == len(made) and all(map(same_call, expected, made)))
