"""P9 for every interleaving: the deltas of the highest attempt, joined, are the final text."""

from hypothesis import given
from hypothesis import strategies as st

from flows.streaming import AnswerStream, TextCleaner, storable_text
from tests.fakes.clock import FakeClock
from topics.events import AnswerDelta, AnswerRestarted, Payload

TEXT = st.text(
    st.sampled_from(["a", "é", "\x00", "\ud83d", "\ude00", "\U0001f600", "\u200d", "\N{COMBINING ACUTE ACCENT}"]), max_size=8
)
CHUNK = st.tuples(st.sampled_from(["t1", "t2", "t3"]), TEXT, st.booleans(), st.sampled_from([0.0, 0.02, 1.0]))


def _stream(clock: FakeClock, **more) -> AnswerStream:
    return AnswerStream(thread_id="t", query_id="q", fence=7, clock=clock, interval_s=0.05, **more)


def _joined(payloads: list[Payload]) -> tuple[int, str]:
    deltas = [payload for payload in payloads if isinstance(payload, AnswerDelta)]
    highest = max((payload.attempt for payload in payloads), default=-1)
    own = [delta for delta in deltas if delta.attempt == highest]
    assert [delta.sequence for delta in own] == list(range(len(own)))
    return highest, "".join(delta.text for delta in own)


@given(st.lists(CHUNK, max_size=20), TEXT, st.sampled_from([None, "retry", "resumed"]))
def test_whatever_was_streamed_the_highest_attempt_is_the_final_text(chunks, final, reopened):
    clock = FakeClock()
    stream, told = _stream(clock, reopened=reopened), []
    for turn, text, calls_tools, passed_s in chunks:
        clock.advance(passed_s)
        told += stream.chunk(turn=turn, text=text, calls_tools=calls_tools)
    text = storable_text(final) or "x"
    told += stream.finish(text)
    assert _joined(told) == (stream.attempt, text)
    attempts = [payload.attempt for payload in told]
    assert attempts == sorted(attempts)
    assert attempts[0] >= 7000
    ids = [payload.identity() for payload in told if isinstance(payload, AnswerDelta)]
    assert len(ids) == len(set(ids))
    restarts = [payload.attempt for payload in told if isinstance(payload, AnswerRestarted)]
    assert len(restarts) == len(set(restarts))


@given(st.lists(TEXT, max_size=10))
def test_text_cleaned_in_pieces_is_the_text_cleaned_whole(pieces):
    cleaner = TextCleaner()
    assert "".join([*map(cleaner.feed, pieces), cleaner.flush()]) == storable_text("".join(pieces))


@given(st.lists(TEXT, max_size=10))
def test_one_turn_alone_needs_no_restart(pieces):
    clock = FakeClock()
    stream, told = _stream(clock), []
    for piece in pieces:
        told += stream.chunk(turn="t", text=piece, calls_tools=False)
    told += stream.finish(storable_text("".join(pieces)))
    assert not [payload for payload in told if isinstance(payload, AnswerRestarted)]


def test_the_first_text_goes_at_once_and_later_text_waits_for_the_interval():
    clock = FakeClock()
    stream = _stream(clock)

    def feed(text: str) -> list[str]:
        return [delta.text for delta in stream.chunk(turn="t", text=text, calls_tools=False) if isinstance(delta, AnswerDelta)]

    assert feed("a") == ["a"]
    assert feed("b") == []
    clock.advance(0.04)
    assert feed("c") == []
    clock.advance(0.02)
    assert feed("d") == ["bcd"]
