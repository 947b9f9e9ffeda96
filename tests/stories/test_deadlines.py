"""Time at the gate: reminders, escalations and ends, each told once though two workers keep the time and one dies."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infra.local.data import datasets
from tests.stories.servers import KAFKA, Servers
from tests.stories.world import nobody, open_world
from topics.events import ApprovalEscalated, ApprovalExpired, ApprovalReminded
from workers.demo.crew import crew
from workers.rebuild import rebuild

pytestmark = [pytest.mark.story, KAFKA, pytest.mark.timeout(300)]

CANCEL = next(task for task in datasets.retail_tasks() if [action.name for action in task.actions] == ["cancel_pending_order"])
POLICY = """
[tenants."*"]
unsigned = true

[[tenants."*".rules]]
name = "soon"
tool = "cancel_pending_order"

[tenants."*".rules.ask]
people = ["nobody-here"]
remind_every_s = 3
expires_after_s = 30
at_expiry = "reject"
escalations = [{ after_s = 6, people = ["story"] }]
"""
THREADS = 6


async def test_what_nobody_decides_is_reminded_escalated_and_ends_once(
    servers: Servers, tmp_path: Path, figure: Callable[[str, object], None]
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    realm = await servers.realm("deadlines", policy_file=str(policy))
    async with open_world(servers, realm, "deadlines") as world, crew(realm.data_dir) as members:
        world.choose = nobody
        await members.start("worker-1")
        await members.start("worker-2")
        tenants = [world.tenant(f"t{number}") for number in range(THREADS)]
        for tenant in tenants:
            await world.order(tenant, CANCEL)
        requests = {tenant: await world.request(tenant) for tenant in tenants}

        def escalated() -> set[str]:
            return {one.payload.approval_id for one in world.heard if isinstance(one.payload, ApprovalEscalated)}

        await world.until(lambda: len(escalated()) == THREADS, "escalations")
        await world.decide(requests[tenants[0]], "approve")  # by one who may only now
        await members.kill("worker-1")
        await world.until_ended()
        await world.until_answered()
        late = await world.decide(requests[tenants[1]], "approve")
        await world.until_answered(late)

        assert world.witness.refused[late].code == "expired"
        assert [len(await world.effects(tenant)) for tenant in tenants] == [1] + [0] * (THREADS - 1)
        statuses = [world.witness.executed[requests[tenant].approval_id].status for tenant in tenants]
        assert statuses == ["ok"] + ["not_run"] * (THREADS - 1)
        told = moments(world.heard)
        for tenant in tenants:
            approval_id = requests[tenant].approval_id
            assert told["escalated", approval_id, 1] == 1
            assert told["expired", approval_id, 0] == (tenant != tenants[0])
            assert told["reminded", approval_id, 1] == 1
        figure("moments told", sum(told.values()))
        assert (await rebuild(realm.settings, only_compare=True)).differences == ()


def moments(heard: list[Any]) -> Counter[tuple[str, str, int]]:
    """How many different events tell each moment."""
    found: Counter[tuple[str, str, int]] = Counter()
    for event in {one.id: one for one in heard}.values():
        match event.payload:
            case ApprovalReminded():
                found["reminded", event.payload.approval_id, event.payload.reminder] += 1
            case ApprovalEscalated():
                found["escalated", event.payload.approval_id, event.payload.level] += 1
            case ApprovalExpired():
                found["expired", event.payload.approval_id, 0] += 1
            case _:
                pass
    return found
