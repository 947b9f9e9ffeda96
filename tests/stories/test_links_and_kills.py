"""P3, P12: a worker is killed between a link of the audit chain and its publication; no link is lost, none is doubled."""

import signal
import sys
from collections import defaultdict
from collections.abc import Callable

import anyio
import pytest

from infra.local.data import datasets
from infra.redis.client import connect
from tests.stories.servers import KAFKA, Realm, Servers
from tests.stories.world import World, nobody
from workers.audit import audit, audit_chain, outcomes
from workers.demo.crew import crew

pytestmark = [pytest.mark.story, KAFKA, pytest.mark.timeout(300)]

CANCEL = next(task for task in datasets.retail_tasks() if [action.name for action in task.actions] == ["cancel_pending_order"])
THREADS = 5
DEATHS = (1, 2, 3)
"""Behind how many links each worker dies. A record is a `crash_loop` at its fifth death."""
LINKS_OF_A_THREAD = 3
"""Accepted, executed, and the late one refused."""


async def test_a_worker_that_dies_behind_a_link_leaves_a_chain_without_fault(
    servers: Servers, world_in: Callable, figure: Callable[[str, object], None]
) -> None:
    realm = await servers.realm("links")
    async with world_in(realm) as world, crew(realm.data_dir) as members:
        world.choose = nobody
        await members.start("asks")
        tenants = [world.tenant(f"t{number}") for number in range(THREADS)]
        for tenant in tenants:
            await world.order(tenant, CANCEL)
        requests = [await world.request(tenant) for tenant in tenants]
        await members.stop("asks")
        for request in requests:
            await world.decide(request, "approve")
            await world.decide(request, "reject", suffix="late")

        untold = 0
        for links in DEATHS:
            await die(realm, links)
            untold += len(await untold_links(realm, tenants))
        assert untold >= len(DEATHS), "each death must leave a link that nobody has read"
        await members.start("mends")
        await world.until_answered()
        await world.until_ended()
        await world.until(lambda: len(world.witness.executed) == THREADS, "every execution")
        await check_chain(realm, world, tenants)
        figure("links left unpublished by a kill", untold)


async def die(realm: Realm, links: int) -> None:
    command = [sys.executable, "-m", "tests.stories.dying_worker", str(realm.data_dir), str(links)]
    with (realm.data_dir / "logs" / f"dies-{links}.log").open("wb") as log:
        process = await anyio.open_process(command, stdout=log, stderr=log)
        try:
            with anyio.fail_after(90):
                assert await process.wait() == -signal.SIGKILL
        finally:
            if process.returncode is None:
                process.kill()


async def untold_links(realm: Realm, tenants: list[str]) -> list[tuple[str, int]]:
    """What Redis has given a number and the broker, as far as it knows, has not."""
    redis = connect(realm.settings.redis_url, timeout_s=10.0)
    try:
        heads = await audit_chain(realm.settings, redis).heads()
    finally:
        await redis.aclose()
    return [(tenant, number) for tenant in tenants if tenant in heads for number in heads[tenant].untold]


async def check_chain(realm: Realm, world: World, tenants: list[str]) -> None:
    found = await audit(realm.settings)
    assert (found.findings.faults, found.redis) == ((), True)
    assert await untold_links(realm, tenants) == []
    numbers: dict[str, list[int]] = defaultdict(list)
    async for one in outcomes(realm.settings):
        assert one.wire is not None
        numbers[one.tenant].append(one.wire["chain"]["number"])
    assert {tenant: sorted(numbers[tenant]) for tenant in tenants} == {
        tenant: list(range(1, LINKS_OF_A_THREAD + 1)) for tenant in tenants
    }, "each number once, and none left out"
    assert len(world.witness.accepted) == len(world.witness.refused) == THREADS
