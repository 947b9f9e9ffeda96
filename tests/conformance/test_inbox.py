"""One behaviour of inboxes: in memory, and in Redis."""

import pytest

from infra.claims import Claim, Failure, Inbox
from infra.redis.inbox import RedisInbox
from tests.fakes.inbox import MemoryInbox


@pytest.fixture(params=["memory", "redis"])
def inbox(request: pytest.FixtureRequest) -> Inbox:
    if request.param == "memory":
        return MemoryInbox()
    client, keys = request.getfixturevalue("redis_client"), request.getfixturevalue("redis_keys")
    return RedisInbox(client, group="triage", retention_s=3600, keys=keys)


async def test_an_unknown_record_is_new(inbox: Inbox) -> None:
    assert await inbox.look(["a", "b"]) == [Claim(), Claim()]


async def test_an_empty_batch_changes_nothing(inbox: Inbox) -> None:
    assert list(await inbox.look([])) == []
    assert list(await inbox.start([], owner="w1")) == []
    await inbox.settle([])
    await inbox.fail([])
    await inbox.release([])


async def test_every_start_is_counted_before_its_handler_runs(inbox: Inbox) -> None:
    assert await inbox.start(["a", "b"], owner="w1") == [1, 1]
    assert await inbox.start(["b"], owner="w2") == [2]
    assert await inbox.look(["a", "b"]) == [Claim("running", starts=1), Claim("running", starts=2)]


async def test_a_settled_record_keeps_its_end_and_loses_its_counters(inbox: Inbox) -> None:
    await inbox.start(["a", "b"], owner="w1")
    await inbox.settle([("a", "done"), ("b", "dead")])
    assert await inbox.look(["a", "b"]) == [Claim("done"), Claim("dead")]


async def test_settling_twice_in_one_batch_keeps_records_and_ends_together(inbox: Inbox) -> None:
    await inbox.settle([("a", "done"), ("a", "done"), ("b", "dead")])
    assert await inbox.look(["a", "b"]) == [Claim("done"), Claim("dead")]


async def test_a_settled_record_is_not_started_again(inbox: Inbox) -> None:
    await inbox.settle([("a", "done")])
    assert await inbox.start(["a", "b"], owner="w1") == [0, 1]
    assert await inbox.look(["a"]) == [Claim("done")]


async def test_a_late_failure_or_release_does_not_bring_a_settled_record_back(inbox: Inbox) -> None:
    await inbox.settle([("a", "done")])
    await inbox.fail([Failure("a", due_at_ms=1, failed_at_ms=1)])
    await inbox.release(["a"])
    assert await inbox.look(["a"]) == [Claim("done")]


async def test_a_failure_is_remembered_with_its_due_time_and_the_first_time(inbox: Inbox) -> None:
    await inbox.start(["a", "b"], owner="w1")
    await inbox.fail([Failure("a", due_at_ms=150, failed_at_ms=100), Failure("b", due_at_ms=160, failed_at_ms=110)])
    assert await inbox.look(["a", "b"]) == [Claim("running", 1, 1, 150, 100), Claim("running", 1, 1, 160, 110)]
    await inbox.start(["a"], owner="w1")
    await inbox.fail([Failure("a", due_at_ms=400, failed_at_ms=200)])
    assert await inbox.look(["a"]) == [Claim("running", 2, 2, 400, 100)]


async def test_a_record_that_runs_again_is_no_longer_due(inbox: Inbox) -> None:
    await inbox.start(["a"], owner="w1")
    await inbox.fail([Failure("a", due_at_ms=150, failed_at_ms=100)])
    await inbox.start(["a"], owner="w1")
    [claim] = await inbox.look(["a"])
    assert claim.due_at_ms is None
    assert claim.first_failed_at_ms == 100


async def test_a_record_that_was_handed_back_counts_no_start(inbox: Inbox) -> None:
    await inbox.start(["a"], owner="w1")
    await inbox.start(["a"], owner="w2")
    await inbox.release(["a"])
    assert await inbox.look(["a"]) == [Claim("running", starts=1)]
    await inbox.release(["a"])
    await inbox.release(["a"])
    assert await inbox.look(["a"]) == [Claim()]
