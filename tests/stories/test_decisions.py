"""P3, P4: the first valid decision wins, what was approved is what runs, and every sender is told."""

from typing import Any

import anyio
import pytest

from infra.local.data import datasets
from tests.stories.world import World, nobody
from topics.catalogue import DECISIONS
from topics.envelope import encode
from topics.events import ApprovalRequested
from topics.records import OutboundRecord

pytestmark = [pytest.mark.story, pytest.mark.timeout(120)]

CANCEL = next(task for task in datasets.retail_tasks() if [action.name for action in task.actions] == ["cancel_pending_order"])
OTHER_REASON = "no longer needed"
RACES = 12


async def _paused(world: World, name: str) -> tuple[str, ApprovalRequested]:
    tenant = world.tenant(name)
    await world.order(tenant, CANCEL)
    return tenant, await world.request(tenant)


def _refusal(world: World, decision_id: str) -> tuple[str, str]:
    refused = world.witness.refused[decision_id]
    return refused.code, refused.detail.partition(":")[0]


async def test_each_kind_of_decision_does_what_it_says_and_no_more(staffed, world_in):
    async with world_in(staffed) as world:
        world.choose = nobody
        edit: dict[str, Any] = CANCEL.actions[0].arguments | {"reason": OTHER_REASON}
        decided = {}
        for decision, changed in {
            "approve": {},
            "edit": {"arguments": edit},
            "reject": {"message": "not today"},
            "respond": {"message": "the order was cancelled by phone"},
        }.items():
            tenant, request = await _paused(world, decision)
            assert decision in request.allowed_decisions
            decided[decision] = (tenant, request, await world.decide(request, decision, **changed))
        await world.until_answered()
        await world.until_ended()

        assert {one for _, _, one in decided.values()} == world.witness.accepted.keys()
        ran = {decision: [one["arguments"] for one in await world.effects(tenant)] for decision, (tenant, _, _) in decided.items()}
        assert ran == {"approve": [CANCEL.actions[0].arguments], "edit": [edit], "reject": [], "respond": []}
        told = {decision: world.witness.executed[request.approval_id] for decision, (_, request, _) in decided.items()}
        assert {decision: one.status for decision, one in told.items()} == {
            "approve": "ok",
            "edit": "ok",
            "reject": "not_run",
            "respond": "not_run",
        }
        assert told["edit"].arguments == edit


async def test_losers_late_comers_and_strangers_are_answered_by_name_and_change_nothing(staffed, world_in):
    async with world_in(staffed) as world:
        world.choose = nobody
        tenant, request = await _paused(world, "shop")
        arguments = request.arguments
        refused = {
            await world.decide(request, "approve", suffix="digest", args_digest="0" * 64): (
                "mismatch",
                "the digest is not that of what waits",
            ),
            await world.decide(request, "approve", suffix="thread", thread_id="elsewhere"): (
                "mismatch",
                "the approval belongs to another thread",
            ),
            await world.decide(request, "approve", suffix="tenant", tenant=world.tenant("stranger")): (
                "unknown",
                "no such approval",
            ),
            await world.decide(request, "approve", suffix="id", approval_id="nobody-asked"): ("unknown", "no such approval"),
            await world.decide(request, "edit", suffix="tool", tool="modify_user_address", arguments=arguments): (
                "invalid_edit",
                "edit_changes_tool",
            ),
            await world.decide(request, "edit", suffix="enum", arguments=arguments | {"reason": "I say so"}): (
                "invalid_edit",
                "invalid_arguments",
            ),
            await world.decide(request, "edit", suffix="extra", arguments=arguments | {"amount": "1e400"}): (
                "invalid_edit",
                "invalid_arguments",
            ),
            await world.decide(request, "edit", suffix="missing", arguments={}): ("invalid_edit", "invalid_arguments"),
            await world.decide(request, "edit", suffix="none"): ("invalid_edit", "invalid_arguments"),
        }
        await world.until_answered(*refused)
        assert {one: _refusal(world, one) for one in refused} == refused
        assert world.witness.refused[f"{request.approval_id}-tenant"].winner is None
        assert world.witness.accepted == {}
        assert await world.effects(tenant) == []

        winner = await world.decide(request, "approve", suffix="winner")
        await world.until_ended()
        later = {
            await world.decide(request, "approve", suffix="again"): "duplicate",
            await world.decide(request, "reject", suffix="late"): "late",
            await world.decide(request, "edit", suffix="late-edit", arguments=arguments | {"reason": OTHER_REASON}): "late",
        }
        # A redelivered decision is the same one, not a second.
        await world.client.publish(world.sent[winner], tenant=tenant, event_id=winner)
        await world.until_answered()

        assert {one: world.witness.refused[one].code for one in later} == later
        assert {world.witness.refused[one].winner.decision_id for one in later} == {winner}
        assert list(world.witness.accepted) == [winner]
        assert [one["arguments"] for one in await world.effects(tenant)] == [arguments]


async def test_of_two_contradictory_decisions_at_once_exactly_one_counts(staffed, world_in, figure):
    """Each pair comes from two producers on two partitions, so that two workers may judge at the same time."""
    async with world_in(staffed) as world:
        world.choose = nobody
        pairs = [await _paused(world, f"race-{number}") for number in range(RACES)]

        async def publish(request: ApprovalRequested, tenant: str, decision: Any, *, key: bytes | None) -> None:
            decision_id = f"{request.approval_id}-{decision}"
            fields = {"approval_id": request.approval_id, "thread_id": request.thread_id, "args_digest": request.args_digest}
            world.sent[decision_id] = payload = DECISIONS.payloads[0].model_validate(
                {**fields, "decision": decision, "approver": decision}
            )
            record = encode(
                payload,
                catalogue=staffed.catalogue,
                tenant=tenant,
                source="s",
                now=world.client.clock.now(),
                ordinal="0",
                event_id=decision_id,
            )
            await world.producer.write(OutboundRecord(record.topic, key or record.key, record.value, record.headers))

        async with anyio.create_task_group() as tasks:
            for number, (tenant, request) in enumerate(pairs):
                tasks.start_soon(lambda r=request, t=tenant: publish(r, t, "approve", key=None))
                tasks.start_soon(lambda r=request, t=tenant, n=number: publish(r, t, "reject", key=f"elsewhere-{n}".encode()))
        await world.until_answered()
        await world.until_ended()

        winners = {one.approval_id: one.decision for one in world.witness.accepted.values()}
        assert winners.keys() == {request.approval_id for _, request in pairs}
        assert len(world.witness.accepted) == RACES
        assert sorted(one.code for one in world.witness.refused.values()) == ["late"] * RACES
        for tenant, request in pairs:
            approved = winners[request.approval_id] == "approve"
            assert len(await world.effects(tenant)) == approved
            assert world.witness.executed[request.approval_id].status == ("ok" if approved else "not_run")
        figure("won by approve", list(winners.values()).count("approve"))
