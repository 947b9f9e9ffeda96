"""P2: a worker dies between an effect that cannot be taken back and its record; a person says what is so, and it is done once."""

import anyio
import pytest

from infra.local.data import datasets
from tests.stories.world import PATIENCE_S, World
from topics.events import ApprovalRequested, Decision
from workers.demo.crew import crew

pytestmark = [pytest.mark.story, pytest.mark.timeout(280)]

CANCEL = next(task for task in datasets.retail_tasks() if [action.name for action in task.actions] == ["cancel_pending_order"])
IT_HAPPENED = "The shop's own list says that it was cancelled."
ANSWERS: dict[Decision, str] = {"respond": "ok", "approve": "ok", "reject": "in_doubt"}


async def _until_applied(world: World, tenant: str) -> None:
    with anyio.fail_after(PATIENCE_S):
        while not await world.effects(tenant):
            await anyio.sleep(0.1)


def _only_calls(request: ApprovalRequested) -> tuple[Decision, None] | None:
    return ("approve", None) if request.kind == "call" else None


async def test_an_effect_that_a_dead_worker_left_in_doubt_waits_for_a_person_and_is_never_done_twice(servers, world_in, figure):
    realm = await servers.realm("doubt", toolset="tests.stories.forgetful:toolset")
    async with world_in(realm) as world, crew(realm.data_dir) as members:
        world.choose = _only_calls
        await members.start("first")
        for answer in ANSWERS:
            # The effect happens at once, and its answer would come after the worker is dead.
            fault = {"kind": "fail_after_effect", "how": "delay", "delay_s": 120, "times": 1}
            await world.back_office_fault(**fault, operation="cancel_pending_order", tenant=world.tenant(answer))
            await world.order(world.tenant(answer), CANCEL, thread=answer)
        for answer in ANSWERS:
            await _until_applied(world, world.tenant(answer))
        await members.kill("first")
        await members.start("second")

        doubts = {answer: await world.request(world.tenant(answer), 2) for answer in ANSWERS}
        assert {(one.kind, one.allowed_decisions) for one in doubts.values()} == {("in_doubt", ("approve", "respond", "reject"))}
        assert not any(stream.ended for stream in world.witness.streams.values())
        for answer, request in doubts.items():
            await world.decide(request, answer, message=IT_HAPPENED if answer == "respond" else None)
        await world.until_ended()
        await world.until_answered()

        for answer, status in ANSWERS.items():
            told = world.witness.executed[doubts[answer].approval_id]
            assert (told.status, told.tool) == (status, "cancel_pending_order"), answer
            # The shop honours the key: run again on a person's word, it is still one effect.
            assert len(await world.effects(world.tenant(answer))) == 1, answer
        assert world.witness.executed[doubts["respond"].approval_id].result == IT_HAPPENED
        figure("in doubt after a kill, decided by a person", len(doubts))
