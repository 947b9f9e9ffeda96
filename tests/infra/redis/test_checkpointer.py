"""The checkpointer on the real server: fences, whole writes, lost keys, ids, and a graph that waits for a person."""

import operator
from collections.abc import AsyncIterator
from typing import Annotated, Any, TypedDict

import anyio
import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, StateGraph, add_messages
from langgraph.types import Command, Interrupt, Send, interrupt
from redis.asyncio import Redis

from infra.redis.checkpointer import CheckpointLostError, HardenedRedisSaver
from infra.redis.client import connect
from infra.redis.keys import Keys
from infra.redis.leases import RedisLeases
from infra.redis.serializer import BadCheckpointError
from topics.errors import FencedError, OutageError

THREAD = "acme-t-17"


@pytest.fixture
async def saver(redis_client: Redis, redis_keys: Keys) -> HardenedRedisSaver:
    saver = HardenedRedisSaver(redis_client, keys=redis_keys)
    await saver.asetup()
    return saver


@pytest.fixture
async def commands(redis_url: str) -> AsyncIterator[Any]:
    """A client that counts the round trips made through it."""
    client = connect(redis_url, timeout_s=5.0)
    client.sent = 0
    execute = client.execute_command

    async def count(*args: Any, **options: Any) -> Any:
        client.sent += 1
        return await execute(*args, **options)

    client.execute_command = count
    yield client
    await client.aclose()


def at(thread: str = THREAD, **more: Any) -> Any:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": "", **more}}


def checkpoint(**values: Any) -> Any:
    return empty_checkpoint() | {"channel_values": values}


async def put(saver: HardenedRedisSaver, config: Any, **values: Any) -> Any:
    return await saver.aput(config, checkpoint(**values), {"source": "loop", "step": 1, "parents": {}}, {})


async def everything(client: Redis, keys: Keys) -> dict[bytes, Any]:
    """All that is stored under the prefix, byte for byte."""
    return {key: await client.dump(key) for key in sorted(await client.keys(f"{keys.prefix}:*"))}


# Fences


async def test_a_stale_writer_writes_nothing(saver: HardenedRedisSaver, redis_client: Redis, redis_keys: Keys) -> None:
    leases = RedisLeases(redis_client, keys=redis_keys)
    async with leases.hold(THREAD) as old:
        first = await put(saver, at(fence=old.fence), text="old")
    async with leases.hold(THREAD) as new:
        second = await put(saver, at(fence=new.fence, checkpoint_id=first["configurable"]["checkpoint_id"]), text="new")
        before = await everything(redis_client, redis_keys)
        with pytest.raises(FencedError):
            await put(saver, at(fence=old.fence), text="stale")
        with pytest.raises(FencedError):
            await saver.aput_writes(
                at(fence=old.fence, checkpoint_id=second["configurable"]["checkpoint_id"]), [("text", "stale")], "task-1"
            )
        assert await everything(redis_client, redis_keys) == before
    found = await saver.aget_tuple(at())
    assert found is not None
    assert found.checkpoint["channel_values"] == {"text": "new"}


async def test_without_a_fence_the_stale_write_goes_through(
    saver: HardenedRedisSaver, redis_client: Redis, redis_keys: Keys
) -> None:
    """The control of the test above."""
    leases = RedisLeases(redis_client, keys=redis_keys)
    async with leases.hold(THREAD), anyio.create_task_group():
        await put(saver, at(), text="stale")
    found = await saver.aget_tuple(at())
    assert found is not None
    assert found.checkpoint["channel_values"] == {"text": "stale"}


async def test_a_fence_that_the_server_forgot_is_stale(saver: HardenedRedisSaver) -> None:
    with pytest.raises(FencedError):
        await put(saver, at(fence=1), text="x")


# What was read under a lease is read once


async def test_a_run_takes_what_was_read_before_it_once_and_then_reads_again(commands: Any, redis_keys: Keys) -> None:
    saver, newest = HardenedRedisSaver(commands, keys=redis_keys), []
    await put(saver, at(), text="old")
    read = await saver.aget_tuple(at(keep_newest=newest))
    before = commands.sent
    assert await saver.aget_tuple(at(fence=7, known_newest=newest)) == read
    assert commands.sent == before
    await put(saver, at(), text="new")
    found = await saver.aget_tuple(at(fence=7, known_newest=newest))
    assert found is not None
    assert found.checkpoint["channel_values"] == {"text": "new"}


@pytest.mark.parametrize(
    "other", [at(), at("acme-t-18", fence=7), at(fence=7, checkpoint_ns="sub"), at(fence=7, checkpoint_id="x")]
)
async def test_what_was_read_before_is_for_a_fenced_run_of_the_same_place(saver: HardenedRedisSaver, other: Any) -> None:
    newest: list[Any] = []
    await put(saver, at(), text="old")
    await saver.aget_tuple(at(keep_newest=newest))
    await put(saver, at(), text="new")
    found = await saver.aget_tuple({"configurable": other["configurable"] | {"known_newest": newest}})
    assert found is None or found.checkpoint["channel_values"] == {"text": "new"}


async def test_a_run_on_what_is_old_by_now_writes_nothing(saver: HardenedRedisSaver, redis_client: Redis, redis_keys: Keys) -> None:
    """P2: somebody else got the thread between the read and the run."""
    leases, newest = RedisLeases(redis_client, keys=redis_keys), []
    await put(saver, at(), text="read")
    async with leases.hold(THREAD) as old:
        await saver.aget_tuple(at(keep_newest=newest))
    async with leases.hold(THREAD) as new:
        await put(saver, at(fence=new.fence), text="somebody else's")
    known = await saver.aget_tuple(at(fence=old.fence, known_newest=newest))
    assert known is not None
    assert known.checkpoint["channel_values"] == {"text": "read"}
    with pytest.raises(FencedError):
        await saver.aput_writes(known.config | at(fence=old.fence, **known.config["configurable"]), [("text", "stale")], "task-1")


# Whole writes, and values as they were


async def test_a_refused_value_writes_nothing(saver: HardenedRedisSaver, redis_client: Redis, redis_keys: Keys) -> None:
    config = await put(saver, at(), text="x")
    before = await everything(redis_client, redis_keys)
    with pytest.raises(TypeError, match="set"):
        await put(saver, config, tags={"a"})
    with pytest.raises(TypeError, match="set"):
        await saver.aput_writes(config, [("good", 1), ("bad", {"a"})], "task-1")
    assert await everything(redis_client, redis_keys) == before


async def test_floats_keep_their_last_digit(saver: HardenedRedisSaver) -> None:
    floats = [2.7715077941825975e-163, 0.1 + 0.2, 1e22, 5e-324, -0.0, 1.0]
    await put(saver, at(), floats=floats)
    found = await saver.aget_tuple(at())
    assert found is not None
    assert list(map(repr, found.checkpoint["channel_values"]["floats"])) == list(map(repr, floats))


async def test_the_control_redisjson_does_change_floats(redis_client: Redis, redis_keys: Keys) -> None:
    """Why values are not stored as JSON documents. When this fails, they could be."""
    key = redis_keys.probe("float")
    await redis_client.execute_command("JSON.SET", key, "$", "[2.7715077941825975e-163]")
    assert await redis_client.execute_command("JSON.GET", key) != b"[2.7715077941825975e-163]"


async def test_writes_that_come_before_their_checkpoint_are_kept(saver: HardenedRedisSaver) -> None:
    """LangGraph does not wait for a checkpoint before it stores what the next step wrote."""
    early = checkpoint(text="x")
    config = at(checkpoint_id=early["id"])
    await saver.aput_writes(config, [("text", "early")], "task-1")
    assert await saver.aget_tuple(at()) is None
    await saver.aput(at(), early, {"source": "loop", "step": 0, "parents": {}}, {})
    found = await saver.aget_tuple(at())
    assert found is not None
    assert found.pending_writes == [("task-1", "text", "early")]


async def test_writes_whose_checkpoint_never_came_are_deleted_with_the_thread(
    saver: HardenedRedisSaver, redis_client: Redis, redis_keys: Keys
) -> None:
    await saver.aput_writes(at(checkpoint_id=checkpoint()["id"]), [("text", "early")], "task-1")
    await saver.adelete_thread(THREAD)
    assert await everything(redis_client, redis_keys) == {}


async def test_writes_come_back_in_the_order_of_their_tasks(saver: HardenedRedisSaver) -> None:
    config = await put(saver, at(), text="x")
    await saver.aput_writes(config, [("b", 1), ("c", 2)], "task-1", "path-2")
    await saver.aput_writes(config, [("a", 3)], "task-2", "path-1")
    found = await saver.aget_tuple(at())
    assert found is not None
    assert found.pending_writes == [("task-2", "a", 3), ("task-1", "b", 1), ("task-1", "c", 2)]


async def test_a_read_and_each_write_are_one_round_trip(commands: Any, redis_keys: Keys) -> None:
    saver = HardenedRedisSaver(commands, keys=redis_keys)
    await put(saver, at("warm-up"), text="x")
    await saver.aput_writes(at("warm-up", checkpoint_id="c"), [("a", 1)], "t")
    await saver.aget_tuple(at("warm-up"))
    commands.sent = 0
    config = await put(saver, at(), text="x")
    assert commands.sent == 1
    await saver.aput_writes(config, [("a", 1), ("b", 2), ("c", 3)], "task-1")
    assert commands.sent == 2
    await saver.aget_tuple(at())
    assert commands.sent == 3


# Lost keys and planted bytes


async def test_a_checkpoint_that_was_lost_is_an_error_and_no_new_thread(
    saver: HardenedRedisSaver, redis_client: Redis, redis_keys: Keys
) -> None:
    config = await put(saver, at(), text="x")
    await saver.aput_writes(config, [("a", 1)], "task-1")
    [key] = await redis_client.keys(f"{redis_keys.checkpoints(THREAD)}*")
    await redis_client.delete(key)
    for lost in (at(), config):
        with pytest.raises(CheckpointLostError) as error:
            await saver.aget_tuple(lost)
        assert error.value.reason_code == "thread_gone"
    with pytest.raises(CheckpointLostError):
        [found async for found in saver.alist(at())]


async def test_writes_cannot_be_lost_without_their_checkpoint(
    saver: HardenedRedisSaver, redis_client: Redis, redis_keys: Keys
) -> None:
    config = await put(saver, at(), text="x")
    await saver.aput_writes(config, [("a", 1)], "task-1")
    await saver.aput_writes(config, [("b", 2)], "task-2")
    assert len(await redis_client.keys(f"{redis_keys.prefix}:*")) == 2, "a checkpoint with its writes, and the index"


@pytest.mark.parametrize("field", ["checkpoint", "metadata", "write:task-1:0"])
async def test_planted_bytes_are_refused(
    saver: HardenedRedisSaver, redis_client: Redis, redis_keys: Keys, tmp_path: Any, field: str
) -> None:
    """Case 38 against the store itself."""
    marker_file = tmp_path / "ran"
    config = await put(saver, at(), text="x")
    await saver.aput_writes(config, [("a", 1)], "task-1")
    [key] = await redis_client.keys(f"{redis_keys.checkpoints(THREAD)}*")
    kind, planted = JsonPlusSerializer().dumps_typed({"x": HumanMessage("x")})
    assert kind == "msgpack"
    for stored in (planted, b"cos\nsystem\n(S'touch %s'\ntR." % str(marker_file).encode(), b"{"):
        await redis_client.hset(key, field, stored)
        with pytest.raises(BadCheckpointError):
            await saver.aget_tuple(at())
    assert not marker_file.exists()


async def test_no_serializer_of_langgraph_is_in_reach(saver: HardenedRedisSaver) -> None:
    """Strict by construction: there is no msgpack to be strict about, whatever the environment says."""
    assert not isinstance(saver.serde, JsonPlusSerializer)
    assert saver.with_allowlist([("os", "system")]) is saver
    for kind in ("msgpack", "pickle", "bytes", "null"):
        with pytest.raises(BadCheckpointError):
            saver.serde.loads_typed((kind, b"{}"))


async def test_a_full_server_is_an_outage_and_writes_nothing(
    saver: HardenedRedisSaver, redis_client: Redis, redis_keys: Keys
) -> None:
    await put(saver, at(), text="x")
    before = await everything(redis_client, redis_keys)
    await redis_client.config_set("maxmemory", "1")
    try:
        with pytest.raises(OutageError):
            await put(saver, at(), text="y")
    finally:
        await redis_client.config_set("maxmemory", "0")
    assert await everything(redis_client, redis_keys) == before


# Ids


@pytest.mark.parametrize("thread", ["Acme-1", "a,b", "a b", "", "a:b", "ä", "a/b", "*", "x" * 201, "a\n", None, 1])
async def test_a_thread_id_outside_the_rule_is_refused_everywhere(saver: HardenedRedisSaver, thread: Any) -> None:
    for call in (
        saver.aget_tuple(at(thread)),
        put(saver, at(thread), text="x"),
        saver.aput_writes(at(thread, checkpoint_id="c"), [("a", 1)], "t"),
        saver.adelete_thread(thread),
        saver.aprune([thread]),
        anext(saver.alist(at(thread))),
    ):
        with pytest.raises(ValueError, match="thread id"):
            await call


async def test_threads_that_begin_alike_are_apart(saver: HardenedRedisSaver) -> None:
    for thread in ("a", "a-1", "a_1", "a-11"):
        await put(saver, at(thread), text=thread)
        await put(saver, at(thread, checkpoint_ns="sub:1|x"), text=thread + " below")
    await saver.adelete_thread("a-1")
    await saver.aprune(["a"], strategy="delete")
    assert await saver.aget_tuple(at("a-1")) is None
    left = {
        (found.config["configurable"]["thread_id"], found.checkpoint["channel_values"]["text"]) async for found in saver.alist(None)
    }
    assert left == {("a_1", "a_1"), ("a_1", "a_1 below"), ("a-11", "a-11"), ("a-11", "a-11 below")}


async def test_a_namespace_does_not_reach_into_another_that_begins_alike(saver: HardenedRedisSaver) -> None:
    for namespace in ("", "a", "a:1", "a;", "a%3A"):
        await put(saver, at(checkpoint_ns=namespace), text=namespace)
    for namespace in ("", "a", "a:1", "a;", "a%3A"):
        found = await saver.aget_tuple(at(checkpoint_ns=namespace))
        assert found is not None
        assert found.checkpoint["channel_values"] == {"text": namespace}
    assert await saver.aget_tuple(at(checkpoint_ns="b")) is None


# Set-up, time to live, pruning


async def test_set_up_may_run_many_times_at_once(redis_client: Redis, redis_keys: Keys) -> None:
    async def start(number: int) -> None:
        async with HardenedRedisSaver(redis_client, keys=redis_keys) as saver:
            await put(saver, at(f"t-{number}"), text="x")

    async with anyio.create_task_group() as group:
        for number in range(32):
            group.start_soon(start, number)


async def test_nothing_expires_unless_asked(saver: HardenedRedisSaver, redis_client: Redis, redis_keys: Keys) -> None:
    await put(saver, at(), text="x")
    assert {await redis_client.ttl(key) for key in await redis_client.keys(f"{redis_keys.prefix}:*")} == {-1}


async def test_a_time_to_live_covers_every_key_and_is_refreshed_by_reading(redis_client: Redis, redis_keys: Keys) -> None:
    saver = HardenedRedisSaver(redis_client, keys=redis_keys, ttl={"default_ttl": 1, "refresh_on_read": True})
    config = await put(saver, at(), text="x")
    await saver.aput_writes(config, [("a", 1)], "task-1")
    keys = await redis_client.keys(f"{redis_keys.prefix}:*")
    assert {59 <= await redis_client.ttl(key) <= 60 for key in keys} == {True}
    for key in keys:
        await redis_client.expire(key, 5)
    await saver.aget_tuple(at())
    assert {59 <= await redis_client.ttl(key) <= 60 for key in keys} == {True}


async def test_an_older_checkpoint_that_expired_is_not_a_loss(redis_client: Redis, redis_keys: Keys) -> None:
    saver = HardenedRedisSaver(redis_client, keys=redis_keys, ttl={"default_ttl": 1})
    first = await put(saver, at(), text="old")
    await put(saver, first, text="new")
    [key] = await redis_client.keys(f"{redis_keys.checkpoints(THREAD)}*{first['configurable']['checkpoint_id']}")
    await redis_client.delete(key)
    assert [found.checkpoint["channel_values"] async for found in saver.alist(at())] == [{"text": "new"}]


async def test_a_pruned_thread_that_waits_can_still_be_resumed(saver: HardenedRedisSaver) -> None:
    graph = approval_graph(saver)
    config = {"configurable": {"thread_id": THREAD}}
    result = await graph.ainvoke({"messages": [HumanMessage("refund W1 please", id="q1")]}, config)
    before = len([found async for found in saver.alist(config)])
    await saver.aprune([THREAD])
    assert before > len([found async for found in saver.alist(config)]) == 1
    [asked] = result["__interrupt__"]
    final = await graph.ainvoke(Command(resume={asked.id: "approve"}), config)
    assert final["log"] == ["W1: approve"]


# A whole graph


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]
    log: Annotated[list[str], operator.add]


def approval_graph(saver: HardenedRedisSaver) -> Any:
    def model(_: State) -> dict[str, Any]:
        call = {"name": "refund", "args": {"order_id": "W1", "note": {"lc": 1, "__send__": True}}, "id": "c1"}
        return {"messages": [AIMessage("", id="a1", tool_calls=[call])]}

    def fan_out(state: State) -> list[Send]:
        return [Send("gate", {"call": call}) for call in state["messages"][-1].tool_calls]

    def gate(asked: dict[str, Any]) -> dict[str, Any]:
        return {"log": [f"{asked['call']['args']['order_id']}: {interrupt(asked)}"]}

    builder = StateGraph(State)
    builder.add_node("model", model)
    builder.add_node("gate", gate)
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", fan_out, ["gate"])
    builder.add_edge("gate", END)
    return builder.compile(checkpointer=saver)


async def test_a_graph_waits_and_is_resumed_by_another_process(redis_url: str, redis_keys: Keys) -> None:
    config = {"configurable": {"thread_id": THREAD}}
    one, two = connect(redis_url, timeout_s=5.0), connect(redis_url, timeout_s=5.0)
    first = approval_graph(HardenedRedisSaver(one, keys=redis_keys))
    await first.ainvoke({"messages": [HumanMessage("refund W1 please", id="q1")]}, config, durability="sync")
    await one.aclose()
    second = approval_graph(HardenedRedisSaver(two, keys=redis_keys))
    state = await second.aget_state(config)
    [asked] = state.interrupts
    assert isinstance(asked, Interrupt)
    assert asked.value == {
        "call": {"name": "refund", "args": {"order_id": "W1", "note": {"lc": 1, "__send__": True}}, "id": "c1", "type": "tool_call"}
    }
    final = await second.ainvoke(Command(resume={asked.id: "approve"}), config)
    assert final["log"] == ["W1: approve"]
    assert (await second.aget_state(config)).tasks == ()
    await two.aclose()


async def test_the_fence_in_the_config_reaches_the_writes_of_a_graph(
    saver: HardenedRedisSaver, redis_client: Redis, redis_keys: Keys
) -> None:
    leases = RedisLeases(redis_client, keys=redis_keys)
    graph = approval_graph(saver)
    async with leases.hold(THREAD) as old:
        pass
    async with leases.hold(THREAD) as new:
        stale = {"configurable": {"thread_id": THREAD, "fence": old.fence}}
        with pytest.raises(FencedError):
            await graph.ainvoke({"messages": [HumanMessage("x", id="q1")]}, stale, durability="sync")
        assert await saver.aget_tuple(at()) is None
        current = {"configurable": {"thread_id": THREAD, "fence": new.fence}}
        await graph.ainvoke({"messages": [HumanMessage("x", id="q1")]}, current, durability="sync")
    assert (await graph.aget_state(at())).interrupts
