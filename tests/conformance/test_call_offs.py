"""One behaviour of call-offs that processes share: in memory, and in Redis."""

from typing import Any

import pytest

from infra.redis.call_offs import RedisCallOffNotes
from infra.redis.keys import CALL_OFF_TTL, milliseconds
from tests.fakes.call_offs import MemoryCallOffNotes


@pytest.fixture(params=["memory", "redis"])
def notes(request: pytest.FixtureRequest) -> Any:
    if request.param == "memory":
        return MemoryCallOffNotes()
    return RedisCallOffNotes(request.getfixturevalue("redis_client"), keys=request.getfixturevalue("redis_keys"))


async def test_what_is_noted_is_read_by_thread_in_the_order_asked_for(notes: Any):
    await notes.note("t1", {"q1", "q ü"})
    await notes.note("t1", {"q2", "q1"})
    await notes.note("t2", ["q3"])
    assert list(await notes.noted(["t2", "t3", "t1"])) == [{"q3"}, set(), {"q1", "q2", "q ü"}]


async def test_nothing_to_note_and_nobody_to_read_for_change_nothing(notes: Any):
    await notes.note("t1", set())
    assert list(await notes.noted([])) == []
    assert list(await notes.noted(["t1"])) == [set()]


async def test_it_is_forgotten_by_itself(redis_client: Any, redis_keys: Any):
    await RedisCallOffNotes(redis_client, keys=redis_keys).note("t1", ["q1"])
    assert 0 < await redis_client.pttl(redis_keys.called_off("t1")) <= milliseconds(CALL_OFF_TTL)


async def test_a_thread_with_very_many_questions_is_called_off_as_well(notes: Any):
    """More than a script can take apart at once."""
    many = {f"q{number}" for number in range(10_000)}
    await notes.note("t1", many)
    assert [set(one) for one in await notes.noted(["t1"])] == [many]
