"""The inbox that counts, and the runtime that it counts for."""

from bench.engine import Case, CountingInbox, Measured
from bench.no_inbox import NoInbox


async def test_the_watch_stops_when_enough_is_settled():
    inbox = CountingInbox(enough=2, inner=NoInbox())
    assert [claim.state for claim in await inbox.look(["a", "b"])] == ["new", "new"]
    assert list(await inbox.start(["a", "b"], owner="w")) == [1, 1]
    await inbox.settle([("a", "done")])
    assert not inbox.done.is_set()
    assert inbox.seconds() == 0
    await inbox.settle([("b", "done")])
    assert inbox.done.is_set()
    assert inbox.seconds() > 0


def test_the_share_of_ideal_is_none_for_handlers_that_take_no_time():
    waits, does_nothing = Case("waits", 100, handler_s=0.5, slots=10), Case("does nothing", 100)
    assert Measured(waits, records=100, seconds=10.0, cpu_s=1.0).share_of_ideal == 0.5
    assert Measured(does_nothing, records=100, seconds=10.0, cpu_s=1.0).share_of_ideal is None
