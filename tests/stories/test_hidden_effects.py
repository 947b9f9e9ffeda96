"""P2: the service does it and does not say so; it is done once and told once."""

from typing import Any

import pytest

from infra.local.data import datasets
from topics.events import ApprovalExecuted

pytestmark = [pytest.mark.story, pytest.mark.timeout(120)]

TASKS = {task.task_id: task for task in datasets.retail_tasks()}
CHANGES = {"WRITE": TASKS["retail-test-43"], "IRREVERSIBLE": TASKS["retail-test-88"]}
CASES: dict[str, tuple[str, list[dict[str, Any]]]] = {
    f"{kind} {name}": (kind, faults)
    for kind in CHANGES
    for name, faults in {
        "cut": [{"kind": "fail_after_effect", "how": "cut"}],
        "status": [{"kind": "fail_after_effect", "how": "status", "status": 500}],
        "twice": [{"kind": "fail_after_effect", "how": "cut", "times": 2}],
        "before and after": [{"kind": "fail_before", "status": 503}, {"kind": "fail_after_effect", "how": "status", "status": 502}],
        "and the look-up fails": [
            {"kind": "fail_after_effect", "how": "cut"},
            {"kind": "fail_before", "operation": "lookup", "status": 500},
        ],
    }.items()
}


async def test_an_effect_whose_answer_was_lost_is_done_once_and_told_once(staffed, world_in):
    async with world_in(staffed) as world:
        tenants = {}
        for number, (case, (kind, faults)) in enumerate(CASES.items()):
            task, tenants[case] = CHANGES[kind], world.tenant(str(number))
            change = next(action.name for action in task.actions if action.mutates)
            for fault in faults:
                await world.back_office_fault(**{"operation": change, "times": 1, **fault}, tenant=tenants[case])
            await world.order(tenants[case], task)
        await world.until_ended()
        await world.until_answered()

        struck = (await world.http.get(f"{world.servers.back_office}/control/faults")).json()["faults"]
        missed = [fault for fault in struck if fault["operation"] != "lookup" and not fault["struck"]]
        assert missed == [], "every fault must strike, or nothing was tried"
        assert any(fault["operation"] == "lookup" and fault["struck"] for fault in struck)
        for case, tenant in tenants.items():
            assert len(await world.effects(tenant)) == 1, case
            told = [e.payload for e in world.heard if isinstance(e.payload, ApprovalExecuted) and e.tenant == tenant]
            assert [(one.status, one.approval_id) for one in told] == [("ok", world.requests_of(tenant)[0].approval_id)], case
