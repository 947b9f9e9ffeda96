"""A deploy between pause and resume (case 19): resumed as it was, or parked and decidable by a build that knows the thread.

Never a thread that ends with its action not done, and never a question asked twice.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypedDict, get_type_hints

import pytest
from redis.asyncio import Redis

from flows.agent import gate, graph
from flows.agent.state import AgentState
from flows.agent.threads import GraphVersionError
from flows.agent.tools import ToolContext, tool
from infra.redis.checkpointer import HardenedRedisSaver
from infra.redis.keys import Keys
from infra.redis.leases import RedisLeases
from tests.fakes.agents import THREAD, TOOLS, World, one, only
from tests.fakes.chat_model import Script, call, say
from tests.fakes.ledger import CrashError, CrashingLedger
from tests.workers.desk import Desk, asked, called_off, continued, decided
from topics.events import (
    AnswerCompleted,
    AnswerFailed,
    AnswerHeld,
    ApprovalAccepted,
    ApprovalExecuted,
    ApprovalRefused,
    ApprovalRequested,
)

REFUND = {"order": "A", "cents": 100}
Build = Callable[[World, pytest.MonkeyPatch], None]


class Added(AgentState):
    priority: int


class Retyped(AgentState):
    asking: str


KEYS = get_type_hints(AgentState, include_extras=True)
Removed = TypedDict("Removed", {name: KEYS[name] for name in KEYS if name != "doubts"})


def node_renamed(_world: World, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(gate, "GATE", "gate_v2")
    patch.setattr(graph, "NODES", tuple("gate_v2" if name == "gate" else name for name in graph.NODES))


def state_is(state: Any) -> Build:
    return lambda _world, patch: patch.setattr(graph, "AgentState", state)


def tool_removed(world: World, _patch: pytest.MonkeyPatch) -> None:
    world.tools = tuple(one for one in TOOLS if one.name != "refund")


@tool(effect="IRREVERSIBLE")
async def refund(context: ToolContext, *, order: str, cents: int, why: str) -> str:
    """Refund an order, with a reason that is needed now."""
    return await context.service.call("refund", {"order": order, "cents": cents, "why": why}, tenant=context.tenant)


def tool_takes_more(world: World, _patch: pytest.MonkeyPatch) -> None:
    world.tools = tuple(refund if one.name == "refund" else one for one in TOOLS)


def argument_with_a_default(world: World, _patch: pytest.MonkeyPatch) -> None:
    @tool(effect="IRREVERSIBLE")
    async def refund(context: ToolContext, *, order: str, cents: int, why: str = "") -> str:
        """Refund an order, with a reason if there is one."""
        return await context.service.call("refund", {"order": order, "cents": cents, "why": why}, tenant=context.tenant)

    world.tools = tuple(refund if one.name == "refund" else one for one in TOOLS)


BUILDS: dict[str, Build] = {
    "a node was renamed": node_renamed,
    "a key of the state was removed": state_is(Removed),
    "a key of the state was retyped": state_is(Retyped),
    "the state has a new required key": state_is(Added),
    "the tool was removed": tool_removed,
    "the tool takes another argument": tool_takes_more,
    "the tool takes an argument with a default": argument_with_a_default,
}


@contextmanager
def build_2(desk: Desk, build: Build) -> Iterator[None]:
    tools = desk.world.tools
    with pytest.MonkeyPatch.context() as patch:
        build(desk.world, patch)
        yield
    desk.world.tools = tools


def model() -> Script:
    return Script(answer=lambda messages: call(("c1", "refund", REFUND)) if messages[-1].text == "hello" else say("Done."))


async def is_parked_and_decidable_later(desk: Desk, other_build: Callable[[], AbstractContextManager[None]]) -> None:
    request = one(ApprovalRequested, await desk.handle(asked("q1")))
    decision = decided(request)
    with other_build():
        for _ in range(3):
            with pytest.raises(GraphVersionError):
                await desk.handle(decision)
        told = await desk.handle(asked("q2", "any news?"))
        assert [type(payload) for payload in told] == [AnswerHeld]
    refusals = only(ApprovalRefused, desk.told)
    assert {(refused.code, refused.decision_id) for refused in refusals} == {("graph_version", "d1")}
    assert desk.world.effects() == []
    assert only(ApprovalRequested, desk.told) == [request]
    # Rolled back, the same record counts.
    told = await desk.handle(decision)
    assert one(ApprovalAccepted, told).decision == "approve"
    assert one(ApprovalExecuted, told).status == "ok"
    assert len(desk.world.effects()) == 1
    assert only(ApprovalRequested, desk.told) == [request]


@pytest.mark.parametrize("what", BUILDS)
async def test_a_thread_of_another_build_is_parked_and_decidable_after_a_rollback(what: str):
    desk = Desk(World(script=model()))
    await is_parked_and_decidable_later(desk, lambda: build_2(desk, BUILDS[what]))


@pytest.mark.story
@pytest.mark.parametrize("what", ["a node was renamed", "a key of the state was retyped"])
async def test_a_thread_in_redis_of_another_build_is_parked_too(what: str, redis_client: Redis, redis_keys: Keys):
    world = World(script=model(), saver=HardenedRedisSaver(redis_client, keys=redis_keys))
    desk = Desk(world, leases=RedisLeases(redis_client, keys=redis_keys))
    await is_parked_and_decidable_later(desk, lambda: build_2(desk, BUILDS[what]))


async def test_a_build_that_says_it_can_resumes_what_another_paused():
    """Only what an older state lacks was added, and has a default where it is read."""
    desk = Desk(World(script=model()))
    request = one(ApprovalRequested, await desk.handle(asked("q1")))

    def successor(_world: World, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(graph, "AgentState", Added)
        patch.setattr(graph, "RESUMES", (request.graph_version,))

    with build_2(desk, successor):
        assert desk.world.agent().graph_version != request.graph_version
        told = await desk.handle(decided(request))
    assert one(ApprovalExecuted, told).status == "ok"
    assert len(desk.world.effects()) == 1
    assert only(ApprovalRequested, desk.told) == [request]


@pytest.mark.parametrize("decision", ["reject", "respond"])
async def test_what_runs_nothing_is_decided_without_the_tool(decision: str):
    desk = Desk(World(script=model()))
    request = one(ApprovalRequested, await desk.handle(asked("q1")))
    with build_2(desk, tool_removed):
        told = await desk.handle(decided(request, decision, message="No."))
    assert one(ApprovalAccepted, told).decision == decision
    assert one(ApprovalExecuted, told).status == "not_run"
    assert desk.world.effects() == []


@pytest.mark.parametrize("whose", ["q1", None])
async def test_another_build_s_thread_cannot_be_called_off_and_its_request_stays_open(whose: str | None):
    desk = Desk(World(script=model()))
    request = one(ApprovalRequested, await desk.handle(asked("q1")))
    with build_2(desk, node_renamed), pytest.raises(GraphVersionError):
        await desk.handle(called_off(whose))
    await desk.handle(decided(request))
    assert len(desk.world.effects()) == 1


async def test_a_call_without_its_tool_can_still_be_called_off():
    desk = Desk(World(script=model()))
    await desk.handle(asked("q1"))
    with build_2(desk, tool_removed):
        await desk.handle(called_off("q1"))
    assert (await desk.world.agent().status(THREAD)).pending == ()
    assert desk.world.effects() == []


async def test_a_verdict_that_stands_is_applied_by_the_next_build_that_can():
    """It was recorded, its worker died, and the build that came next does not know the thread."""
    desk = Desk(World(script=model()))
    request = one(ApprovalRequested, await desk.handle(asked("q1")))
    run = desk.payloads(decided(request))
    async for payload in run:
        if isinstance(payload, ApprovalAccepted):
            break
    await run.aclose()
    with build_2(desk, node_renamed), pytest.raises(GraphVersionError):
        await desk.handle(decided(request))
    assert desk.world.effects() == []
    told = await desk.handle(decided(request))
    assert one(ApprovalExecuted, told).status == "ok"
    assert len(desk.world.effects()) == 1


async def test_a_verdict_that_stands_is_not_lost_on_a_build_without_the_tool():
    desk = Desk(World(script=model()))
    request = one(ApprovalRequested, await desk.handle(asked("q1")))
    run = desk.payloads(decided(request))
    async for payload in run:
        if isinstance(payload, ApprovalAccepted):
            break
    await run.aclose()
    with build_2(desk, tool_removed), pytest.raises(GraphVersionError):
        await desk.handle(decided(request))
    told = await desk.handle(decided(request))
    assert one(ApprovalExecuted, told).status == "ok"
    assert len(desk.world.effects()) == 1


@pytest.mark.parametrize("build", [tool_removed, tool_takes_more])
async def test_an_approved_call_that_a_crash_left_open_is_parked_too_and_can_be_called_off(build: Build):
    """Its effect may have happened: a build without the tool must not say that it was not run."""
    desk = Desk(World(script=model()))
    request = one(ApprovalRequested, await desk.handle(asked("q1")))
    ledger, desk.world.ledger = desk.world.ledger, CrashingLedger(desk.world.ledger, at="after record, before checkpoint")
    with pytest.raises(CrashError):
        await desk.handle(decided(request))
    desk.world.ledger = ledger
    with build_2(desk, build):
        for record in (decided(request), asked("q1"), asked("q2", "any news?"), continued()):
            with pytest.raises(GraphVersionError):
                await desk.handle(record)
        assert only(ApprovalExecuted, desk.told) == []
        told = await desk.handle(called_off("q1"))
    assert {fact.status for fact in only(ApprovalExecuted, told)} == {"ok"}
    assert {ending.code for ending in only(AnswerFailed, told)} == {"cancelled"}
    assert len(desk.world.effects()) == 1


STORED = Path(__file__).parent / "stored"


async def restore(keys: dict[str, dict[str, Any]], client: Redis, *, prefix: str) -> None:
    """Put a stored thread's keys into a server."""
    for name, value in keys.items():
        if "hash" in value:
            await client.hset(f"{prefix}{name}", mapping=value["hash"])
        elif "zset" in value:
            await client.zadd(f"{prefix}{name}", dict(value["zset"]))
        else:
            await client.set(f"{prefix}{name}", value["string"])


def test_each_earlier_version_that_is_resumed_has_a_stored_thread():
    assert {path.stem for path in STORED.glob("*.json")} == set(graph.RESUMES)


@pytest.mark.story
@pytest.mark.parametrize("version", graph.RESUMES)
async def test_a_thread_that_an_earlier_build_paused_is_resumed_from_its_bytes(version: str, redis_client: Redis, redis_keys: Keys):
    stored = json.loads((STORED / f"{version}.json").read_text())
    await restore(stored["keys"], redis_client, prefix=redis_keys.prefix)
    request = ApprovalRequested.model_validate(stored["request"])
    script = Script(answer=lambda messages: say(f"Done, {sum(one.type == 'human' for one in messages)} questions."))
    world = World(script=script, saver=HardenedRedisSaver(redis_client, keys=redis_keys))
    leases = RedisLeases(redis_client, keys=redis_keys)
    assert request.graph_version == version != world.agent().graph_version
    assert (await world.agent().status(THREAD)).pending == (request,)

    async with leases.hold(THREAD.checkpoint_id) as lease:
        world.fence = lease.fence - 1
        told = await world.resume(request)
    assert one(ApprovalExecuted, told).status == "ok"
    assert [name for name, _ in world.effects()] == ["read", "refund"]
    assert one(AnswerCompleted, told).text == "Done, 2 questions."

    # It goes on as a thread of this build.
    async with leases.hold(THREAD.checkpoint_id) as lease:
        world.fence = lease.fence - 1
        assert one(AnswerCompleted, await world.ask("more", query_id="q3")).text == "Done, 3 questions."
    assert (await world.agent().status(THREAD)).graph_version == world.agent().graph_version
