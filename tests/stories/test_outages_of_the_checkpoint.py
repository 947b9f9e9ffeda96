"""Case 21: Redis refuses or hides a thread. Nobody is asked before the pause is durable, and nothing lost begins anew."""

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any

import anyio
import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from flows.agent.threads import ThreadRef
from infra.redis import client as door
from infra.redis.approvals import RedisApprovalRegistry
from infra.redis.checkpointer import HardenedRedisSaver
from infra.redis.effects import RedisEffectLedger
from infra.redis.held import RedisHeldQueries
from infra.redis.keys import Keys
from infra.redis.leases import RedisLeases
from tests.fakes.agents import THREAD, World, one, only
from tests.fakes.chat_model import Script, call, say
from tests.workers.desk import Desk, asked, decided
from topics.envelope import Event
from topics.errors import ConfigError, OutageError, RetryableError
from topics.events import AnswerCompleted, ApprovalRefused, ApprovalRequested, Payload

pytestmark = pytest.mark.story

REFUND = call((None, "refund", {"order": "A", "cents": 100}), text=["One moment. "])
MAX_TRIES = 400
CUTS = 40


@pytest.fixture
async def desk(redis_url: str, redis_keys: Keys) -> AsyncGenerator[Desk]:
    """The workers on real Redis. The model asks for a refund, and is done when it has its answer."""
    async with aclosing(door.connect(redis_url, timeout_s=2.0)) as client:
        registry = RedisApprovalRegistry(client, keys=redis_keys)
        await registry.prepare()
        yield Desk(
            world=World(
                script=Script(answer=lambda messages: REFUND if messages[-1].type == "human" else say("Done.")),
                saver=HardenedRedisSaver(client, keys=redis_keys),
                ledger=RedisEffectLedger(client, keys=redis_keys),
            ),
            registry=registry,
            held=RedisHeldQueries(client, keys=redis_keys),
            leases=RedisLeases(client, lease_ms=2000, keys=redis_keys),
        )


async def handled(desk: Desk, event: Event[Any]) -> tuple[list[Payload], int]:
    """Deliver until it is done, as the runtime does for what may pass. Returns what the last delivery told, and the failures."""
    for failures in range(MAX_TRIES):
        try:
            return await desk.handle(event), failures
        except (OutageError, RetryableError):
            await anyio.sleep(0.02)
    pytest.fail("never done")


async def test_i_a_full_server_pauses_and_asks_nobody(desk: Desk, redis_client: Redis):
    """At each step: the memory ends after so many more bytes."""
    used = int((await redis_client.info("memory"))["used_memory"])
    refused = 0
    try:
        for room in (-1_000_000, 0, 2_000, 20_000, 60_000, 150_000):
            await redis_client.config_set("maxmemory", str(used + room))
            try:
                told = await desk.handle(asked("q1"))
            except OutageError:
                refused += 1
                told = only(ApprovalRequested, desk.told)
            for request in only(ApprovalRequested, told):
                assert await desk.registry.find("acme", request.approval_id), "asked, so it is registered"
                assert (await desk.world.agent().status(THREAD)).pending, "and its thread waits"
    finally:
        await redis_client.config_set("maxmemory", "0")
    assert refused >= 1
    request = one(ApprovalRequested, (await handled(desk, asked("q1")))[0])
    await handled(desk, decided(request))
    assert len(desk.world.effects()) == 1


async def test_i_what_cannot_be_made_durable_is_not_asked(desk: Desk, monkeypatch: pytest.MonkeyPatch):
    def never(*_: Any, **__: Any) -> None:
        raise OutageError("Redis did not confirm its disk")

    with monkeypatch.context() as patched:
        patched.setattr("infra.redis.client._check_confirmed", never)
        with pytest.raises(OutageError):
            await desk.handle(asked("q1"))
    assert only(ApprovalRequested, desk.told) == []
    told, _ = await handled(desk, asked("q1"))
    one(ApprovalRequested, told)


async def test_ii_a_demoted_server_is_waited_for_and_the_work_is_done_once(desk: Desk, redis_client: Redis):
    request = one(ApprovalRequested, (await handled(desk, asked("q1")))[0])
    for event, done in ((decided(request), 1), (asked("q2"), 1)):
        await redis_client.execute_command("REPLICAOF", "127.0.0.1", "1")
        try:
            with pytest.raises(OutageError, match="ReadOnly"):
                await desk.handle(event)
        finally:
            await redis_client.execute_command("REPLICAOF", "NO", "ONE")
        await handled(desk, event)
        assert len(desk.world.effects()) == done
    assert {found.approval_id for found in only(ApprovalRequested, desk.told)} > {request.approval_id}


async def test_iii_connections_that_are_cut_at_any_moment_cost_tries_and_nothing_else(desk: Desk, redis_client: Redis):
    own = await redis_client.client_id()
    events: list[Event[Any]] = [asked("q1")]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_keep_cutting, redis_client, own)
        told, failures = await handled(desk, events[0])
        request = one(ApprovalRequested, told)
        _, more = await handled(desk, decided(request))
        tasks.cancel_scope.cancel()
    assert failures + more > 0, "nothing was cut in the middle"
    assert len({found.approval_id for found in only(ApprovalRequested, desk.told)}) == 1, "one interrupt"
    assert len(desk.world.effects()) == 1
    assert {found.text for found in only(AnswerCompleted, desk.told)} == {"Done."}


async def _keep_cutting(client: Redis, own: int) -> None:
    """Cut everybody else off, at moments that lie further and further apart: at last there is time to be done."""
    for cut in range(CUTS):
        for found in await client.client_list():
            if int(found["id"]) != own:
                with suppress(ResponseError):  # it went by itself
                    await client.client_kill_filter(_id=found["id"])
        await anyio.sleep(0.01 * 1.15**cut)


async def test_iv_and_vi_a_thread_that_lost_any_key_is_gone_and_never_begins_anew(
    desk: Desk, redis_client: Redis, redis_keys: Keys
):
    """An eviction takes one key, whichever: nothing runs and the person hears of it, unless nothing was lost that counts."""
    fates: list[str] = []
    while True:
        thread = ThreadRef("acme", f"t-{len(fates)}")
        request = one(ApprovalRequested, (await handled(desk, asked("q1", thread=thread.thread_id)))[0])
        newest_first = sorted(await _keys_of(redis_client, redis_keys, thread), reverse=True)
        if len(fates) == len(newest_first):
            break
        await redis_client.delete(newest_first[len(fates)])
        effects, prompts = len(desk.world.effects()), len(desk.world.script.prompts)
        told = await desk.handle(decided(request, id_=f"d{len(fates)}"))
        assert only(ApprovalRequested, told) == []
        if refused := only(ApprovalRefused, told):
            assert (len(desk.world.effects()), len(desk.world.script.prompts)) == (effects, prompts), "no ghost run"
            fates.append(refused[0].code)
        else:
            assert len(desk.world.effects()) == effects + 1
            fates.append("done")
    assert fates.count("thread_gone") >= 2, "its index, and its newest checkpoint"
    assert set(fates) <= {"thread_gone", "done"}


async def _keys_of(client: Redis, keys: Keys, thread: ThreadRef) -> list[bytes]:
    """What holds a thread's state."""
    checkpoints = [key async for key in client.scan_iter(match=f"{keys.checkpoints(thread.checkpoint_id)}*", count=1000)]
    return [*checkpoints, keys.history(thread.checkpoint_id).encode()]


async def test_v_a_user_without_the_commands_that_we_need_fails_the_start(redis_url: str, redis_client: Redis, redis_keys: Keys):
    """One group of commands after the other."""
    for number, denied in enumerate(("-set -hset -rpush", "-lrange", "-pexpire", "-ft.search", "-ft.create", "-evalsha -eval")):
        user = f"probe-{number}"
        await redis_client.execute_command("ACL", "SETUSER", user, "on", ">secret", "~*", "&*", "+@all", *denied.split())
        address = redis_url.replace("redis://", f"redis://{user}:secret@")
        try:
            async with aclosing(door.connect(address, timeout_s=5.0)) as client:
                with pytest.raises(ConfigError, match="Redis refuses"):
                    await door.check_server(client, keys=redis_keys)
        finally:
            await redis_client.execute_command("ACL", "DELUSER", user)


@pytest.mark.parametrize(
    "policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-ttl", "volatile-random"]
)
async def test_a_server_that_can_drop_a_key_by_itself_fails_the_start(redis_client: Redis, redis_keys: Keys, policy: str):
    await redis_client.config_set("maxmemory-policy", policy)
    try:
        with pytest.raises(ConfigError, match="noeviction"):
            await door.check_server(redis_client, keys=redis_keys)
    finally:
        await redis_client.config_set("maxmemory-policy", "noeviction")
