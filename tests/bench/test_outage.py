"""The judge of outages: a stream that somebody else went on with is seen, and so is every question that nobody answered."""

from typing import Any

import pytest

from bench.figures import outage
from bench.figures.bounds import FigureError
from topics.events import AnswerCompleted
from workers.demo.witness import Stream

A, B = "a alone says this.", "b alone says this."
FINE: dict[str, Any] = {
    "outage_queries": 40,
    "outage_answered_by_b": 40,
    "outage_probes": 3,
    "outage_used_again": True,
    "outage_hang_queries": 20,
    "outage_hang_answered_by_b": 20,
    "outage_hang_waited": 9,
    "outage_hang_waited_behind_an_open_breaker": 0,
    "outage_stopped": 4,
    "outage_stopped_restarted": 4,
    "outage_stopped_wrong": 0,
    "outage_paused": True,
    "outage_waited": 10,
    "outage_caught_up": 10,
    "outage_dead_letters": 0,
    "outage_control_unanswered": 5,
}


def stream(text: str, *attempts: tuple[str, ...]) -> Stream:
    found = Stream()
    for number, pieces in enumerate(attempts, start=1):
        found.pieces[number] = dict(enumerate(pieces))
    found.completed = AnswerCompleted(thread_id="t", query_id="q", attempt=len(attempts), text=text)
    return found


def test_an_answer_that_stopped_and_was_begun_anew_by_anybody_is_whole():
    begun_anew = stream(B, ("a ", "alone"), ("b alone ", "says this."))
    assert outage.is_whole(begun_anew, (A, B))
    assert outage.void_texts(begun_anew) == ["a alone"]
    assert outage.void_texts(stream(A, (A,))) == []


@pytest.mark.parametrize(
    "continued",
    [
        stream("a alone says this.", ("a alone",), ("b alone says this.",)),
        stream("a b alone says this.", ("a ", "b alone says this.")),
        stream(B, ("a ", "b alone says this.")),
        Stream(),
    ],
)
def test_an_answer_that_another_provider_went_on_with_is_not_whole(continued: Stream):
    assert not outage.is_whole(continued, (A, B))


@pytest.mark.parametrize(
    ("changed", "broken"),
    [
        ({"outage_answered_by_b": 39}, "every_question_in_the_outage_was_answered_by_b"),
        ({"outage_dead_letters": 1}, "nothing_was_lost"),
        ({"outage_hang_answered_by_b": 19}, "every_question_that_a_held_was_answered_by_b"),
        ({"outage_hang_waited": 0}, "some_waited_for_a_that_hangs"),
        ({"outage_hang_waited_behind_an_open_breaker": 1}, "nobody_waits_behind_an_open_breaker"),
        ({"outage_stopped_restarted": 3}, "every_answer_that_stopped_was_begun_anew"),
        ({"outage_stopped": 0, "outage_stopped_restarted": 0}, "every_answer_that_stopped_was_begun_anew"),
        ({"outage_stopped_wrong": 1}, "none_was_continued_by_somebody_else"),
        ({"outage_caught_up": 9}, "all_were_answered_in_the_end"),
        ({"outage_control_unanswered": 0}, "without_b_some_waited"),
    ],
)
def test_each_bound_is_held(changed: dict[str, Any], broken: str):
    assert outage.judge(FINE) == FINE
    with pytest.raises(FigureError, match=broken):
        outage.judge({**FINE, **changed})
