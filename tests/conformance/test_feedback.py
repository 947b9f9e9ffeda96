"""One behaviour of feedback beside a thread: in memory, and in Redis."""

from datetime import timedelta
from typing import Any

import pytest

from infra.redis.feedback import KEPT, RedisFeedback
from tests.fakes.clock import START
from tests.fakes.feedback import MemoryFeedback
from topics.feedback import Feedback


@pytest.fixture(params=["memory", "redis"])
def book(request: pytest.FixtureRequest) -> Any:
    if request.param == "memory":
        return MemoryFeedback()
    return RedisFeedback(request.getfixturevalue("redis_client"), keys=request.getfixturevalue("redis_keys"))


def said(number: int, **changed: Any) -> Feedback:
    fields: dict[str, Any] = {
        "feedback_id": f"f-{number:03}",
        "query_id": "q1",
        "thumb": "down",
        "note": 'für "dich" ✓\n',
        "at": START + timedelta(seconds=number),
    }
    return Feedback(**fields | changed)


async def test_feedback_comes_back_as_it_was_oldest_first(book: Any):
    second, first, timeless = said(2), said(1, query_id=None, thumb=None, note=None), said(3, at=None)
    for one in (second, first, timeless):
        assert await book.attach("t1", one)
    assert list(await book.of("t1")) == [timeless, first, second]
    assert list(await book.of("t2")) == []


async def test_an_event_that_is_delivered_again_is_kept_once(book: Any):
    assert await book.attach("t1", said(1))
    assert not await book.attach("t1", said(1))
    assert list(await book.of("t1")) == [said(1)]


async def test_of_very_many_the_newest_are_kept(book: Any):
    """P7: whoever floods a thread with feedback fills no memory."""
    for number in range(KEPT + 5):
        await book.attach("t1", said(number))
    kept = [one.feedback_id for one in await book.of("t1")]
    assert kept == [said(number).feedback_id for number in range(5, KEPT + 5)]


async def test_the_first_trace_of_a_question_stands_and_is_of_its_thread_alone(book: Any):
    await book.remember_trace("t1", "q1", "00-a")
    await book.remember_trace("t1", "q1", "00-b")
    assert await book.trace_of("t1", "q1") == "00-a"
    assert await book.trace_of("t2", "q1") is None
    assert await book.trace_of("t1", "q2") is None
