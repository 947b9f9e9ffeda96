"""The judge of streams: it sees a text that is not what was meant, and a consumer that is told twice is not misled."""

import random
from collections.abc import Sequence

import pytest

from bench.figures import streams
from bench.figures.bounds import FigureError
from flows.answer_filter import shown_text
from topics.envelope import Event
from topics.events import AnswerCompleted, AnswerDelta, AnswerRestarted, Payload
from topics.records import RawRecord

PLAN = streams.Planned("s0", "t0", ("Hel", "lo."), {}, calls_first=False)
CUT = (
    AnswerDelta(thread_id="t0", query_id="s0", attempt=1000, sequence=0, text="He"),
    AnswerRestarted(thread_id="t0", query_id="s0", attempt=2000, reason="retry"),
    AnswerDelta(thread_id="t0", query_id="s0", attempt=2000, sequence=0, text="Hel"),
    AnswerDelta(thread_id="t0", query_id="s0", attempt=2000, sequence=1, text="lo."),
)
ENDED = AnswerCompleted(thread_id="t0", query_id="s0", attempt=2000, text="Hello.")


def heard(payloads: Sequence[Payload]) -> streams.Heard:
    found = streams.Heard()
    for payload in payloads:
        found.note(Event(f"{payload.TYPE}:{payload.identity()}", "w", "bench", "k", payload, RawRecord("answers", 0, 0, None, b"")))
    return found


def test_the_last_attempt_counts_and_what_comes_twice_counts_once():
    found = heard([*CUT, *CUT, ENDED, ENDED])
    assert (found.joined("s0"), found.joined_all("s0"), found.restarts("s0")) == ("Hello.", "HeHello.", 1)
    assert streams._judged(found, [PLAN])["stream_mismatches_control"] == 1


@pytest.mark.parametrize(
    ("payloads", "broken"),
    [
        ([*CUT[:3], ENDED], "every_stream_is_its_answer"),
        ([*CUT, ENDED.model_copy(update={"text": "Hello"})], "every_stream_is_its_answer"),
        ([*CUT[2:], ENDED], "streams_were_restarted"),
        (CUT, "every_answer_is_what_was_meant"),
    ],
)
def test_a_stream_that_is_not_what_was_meant_is_seen(payloads: Sequence[Payload], broken: str):
    with pytest.raises(FigureError, match=broken):
        streams._judged(heard(payloads), [PLAN])


def test_a_secret_that_is_shown_is_seen():
    secret = streams.SECRETS[0]
    shown = AnswerDelta(thread_id="t0", query_id="s0", attempt=2000, sequence=0, text=secret)
    with pytest.raises(FigureError, match="no_secret_is_shown"):
        streams._judged(heard([*CUT[:2], shown, ENDED.model_copy(update={"text": secret})]), [PLAN])


def test_every_plan_is_the_same_from_run_to_run_and_holds_something_to_remove():
    plans = list(streams.planned(50, random.Random(29)))
    assert plans == list(streams.planned(50, random.Random(29)))
    assert all(shown_text("".join(plan.pieces)) != "".join(plan.pieces) for plan in plans)
