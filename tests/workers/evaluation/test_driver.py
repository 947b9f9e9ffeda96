"""One task through the real graph, in memory: who is asked, what is decided, and what is seen."""

from typing import Any

import pytest

from flows.agent.threads import ThreadRef
from flows.evaluation.tasks import Call, Task
from tests.fakes.agents import World
from tests.fakes.chat_model import Script, Turn, call, say
from tests.fakes.leases import MemoryLeases
from topics.errors import UnavailableError
from workers.evaluation import driver as drivers
from workers.evaluation.driver import Approver, Driver

READ = Call(tool="read_order", arguments={"order": "A"})
REFUND = Call(tool="refund", arguments={"order": "A", "cents": 500})
TASK = Task(task_id="one", messages=("Refund A",), calls=(READ, REFUND))


class Shop:
    async def changes(self, tenant: str) -> list[dict[str, Any]]:
        return [{"table": "orders", "key": tenant, "after": {"refunded": True}}]


def orders(*made: Call) -> list[Turn]:
    return [call((f"c{number}", one.tool, one.arguments)) for number, one in enumerate(made)]


def refunds(world: World) -> int:
    return [operation for operation, _ in world.effects()].count("refund")


def driver(world: World, approver: Approver = "expected") -> Driver:
    return Driver(world.agent(), MemoryLeases(), world.saver, Shop(), approver)


async def drive(*turns: Turn, approver: Approver = "expected", task: Task = TASK) -> tuple[World, Any]:
    world = World(script=Script(turns=list(turns)))
    return world, await driver(world, approver).drive(task, tenant="eval")


async def test_a_task_is_asked_about_decided_and_seen():
    world, seen = await drive(*orders(READ, REFUND), say("Done."))
    assert seen.calls == (READ, REFUND)
    assert seen.route == ("asked", "answered")
    assert seen.text == "Done."
    assert seen.changes[0].key == "eval"
    assert refunds(world) == 1


@pytest.mark.parametrize(("approver", "effects"), [("expected", 0), ("all", 1), ("none", 0)])
async def test_the_approver_says_yes_to_what_the_dataset_allows_and_to_nothing_else(approver, effects):
    other = Call(tool="refund", arguments={"order": "A", "cents": 50_000})
    world, seen = await drive(*orders(READ, other), say("Done."), approver=approver)
    assert refunds(world) == effects
    assert seen.calls == (READ, other)
    assert seen.errors == (0 if effects else 1)


async def test_a_refusal_of_the_model_is_seen_as_the_route_that_it_is():
    _, seen = await drive(*orders(READ, REFUND), Turn(refusal="I will not."))
    assert seen.route == ("asked", "refused")


async def test_several_messages_are_one_conversation():
    task = Task(task_id="two", messages=("Look at A", "Refund A"), calls=(READ, REFUND))
    _, seen = await drive(*orders(READ), say("It is there."), *orders(REFUND), say("Done."), task=task)
    assert seen.calls == (READ, REFUND)
    assert seen.text == "It is there.\nDone."


async def test_what_may_pass_is_tried_again_and_nothing_happens_twice(monkeypatch):
    monkeypatch.setattr(drivers, "FIRST_WAIT_S", 0.0)
    world, seen = await drive(*orders(READ, REFUND), Turn(error=UnavailableError("away")), say("Done."))
    assert seen.text == "Done."
    assert refunds(world) == 1


async def test_a_task_that_was_cut_off_behind_its_approval_came_by_the_same_stations(monkeypatch):
    monkeypatch.setattr(drivers, "FIRST_WAIT_S", 0.0)
    away = [Turn(error=UnavailableError("away"))] * drivers.TRIES
    world = World(script=Script(turns=[*orders(READ, REFUND), *away, say("Done.")]))
    with pytest.raises(UnavailableError):
        await driver(world).drive(TASK, tenant="eval")
    seen = await driver(world).drive(TASK, tenant="eval")
    assert (seen.route, seen.asked) == (("asked", "answered"), 1)
    assert refunds(world) == 1


async def test_what_does_not_pass_is_raised_after_some_tries(monkeypatch):
    monkeypatch.setattr(drivers, "FIRST_WAIT_S", 0.0)
    with pytest.raises(UnavailableError):
        await drive(*(Turn(error=UnavailableError("away")) for _ in range(10)))


async def test_a_thread_that_is_forgotten_is_gone():
    world = World(script=Script(turns=[say("Hello.")]))
    one = driver(world)
    await one.drive(TASK, tenant="eval")
    assert await world.messages(ThreadRef("eval", "one"))
    await one.forget(TASK, tenant="eval")
    assert not await world.messages(ThreadRef("eval", "one"))
