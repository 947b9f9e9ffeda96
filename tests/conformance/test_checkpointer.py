"""LangGraph's own conformance suite over our checkpointer, and what it does not ask."""

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import BASE_CAPABILITIES
from redis.asyncio import Redis

from infra.redis.checkpointer import HardenedRedisSaver
from infra.redis.keys import Keys


@pytest.mark.parametrize("ttl", [None, {"default_ttl": 60, "refresh_on_read": True}])
async def test_every_capability_that_we_have_is_full(redis_client: Redis, redis_keys: Keys, ttl: dict | None) -> None:
    @checkpointer_test(name="hardened")
    async def hardened():
        saver = HardenedRedisSaver(redis_client, keys=redis_keys, ttl=ttl)
        await saver.asetup()
        yield saver

    report = await validate(hardened)
    failures = {name: result.failures for name, result in report.results.items() if result.failures}
    assert failures == {}
    assert report.passed_all_base()
    assert {name for name, result in report.results.items() if result.passed} == {cap.value for cap in BASE_CAPABILITIES} | {
        "prune"
    }
