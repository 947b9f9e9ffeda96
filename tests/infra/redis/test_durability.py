"""What was acknowledged survives a Redis that is killed."""

from pathlib import Path

from langgraph.checkpoint.base import empty_checkpoint

from infra.claims import Claim
from infra.local.redis_server import redis_server
from infra.redis.approvals import RedisApprovalRegistry
from infra.redis.checkpointer import HardenedRedisSaver
from infra.redis.client import check_server, connect
from infra.redis.effects import EffectClaim, RedisEffectLedger
from infra.redis.held import HeldQuery, RedisHeldQueries
from infra.redis.inbox import RedisInbox
from infra.redis.leases import RedisLeases
from topics.events import ApprovalRequested, QueryAsked

ASKED = ApprovalRequested(
    approval_id="a1",
    thread_id="t1",
    query_id="q1",
    interrupt_id="i1",
    tool="refund",
    tool_class="IRREVERSIBLE",
    arguments={"amount_cents": 4990},
    args_digest="d",
    policy_version="1",
    graph_version="1",
    allowed_decisions=("approve",),
)


async def test_everything_acknowledged_is_there_after_a_kill(tmp_path: Path) -> None:
    config = {"configurable": {"thread_id": "t1", "checkpoint_ns": ""}}
    held = HeldQuery("q2", QueryAsked(thread_id="t1", text="forget it"))
    async with redis_server(data_dir=tmp_path) as server:
        client = connect(server.url, timeout_s=5.0)
        inbox = RedisInbox(client, group="g", retention_s=60)
        saver, ledger = HardenedRedisSaver(client), RedisEffectLedger(client)
        await inbox.start(["r1"], owner="w1")
        async with RedisLeases(client).hold("t1") as lease:
            fenced = {"configurable": config["configurable"] | {"fence": lease.fence}}
            await saver.aput(
                fenced, empty_checkpoint() | {"channel_values": {"x": 1}}, {"source": "loop", "step": 0, "parents": {}}, {}
            )
            await ledger.begin("e1", thread="t1", fence=lease.fence)
        await RedisApprovalRegistry(client).open("acme", [ASKED])
        await RedisHeldQueries(client).hold("t1", held)

        await server.restart()

        assert await check_server(client) == []
        assert await inbox.look(["r1"]) == [Claim("running", starts=1)]
        found = await saver.aget_tuple(config)
        assert found is not None
        assert found.checkpoint["channel_values"] == {"x": 1}
        async with RedisLeases(client).hold("t1") as again:
            assert again.fence > lease.fence
            assert await ledger.begin("e1", thread="t1", fence=again.fence) == EffectClaim("in_doubt")
        assert [known.request for known in await RedisApprovalRegistry(client).pending("acme", limit=10)] == [ASKED]
        assert await RedisHeldQueries(client).first("t1") == held
        await client.aclose()
