"""The acts at the gate: people decide on calls, alone and by two, again and too late, or not at all."""

from typing import Final

import anyio

from infra.local.data.datasets import retail_seed, retail_tasks
from topics.events import ApprovalRequested, QueryAsked
from workers.demo.stage import Stage

TASKS: Final = 24
QUIET_DESK: Final = "quiet-desk"
SECOND_DESK: Final = "second-desk"
FORGOTTEN: Final = "retail-test-88"  # a cancellation
SAVED: Final = "retail-test-39"  # a customer's new address
EDITED: Final = "retail-test-52"  # an exchange, by a customer with several ways to pay


async def run_tasks(stage: Stage) -> None:
    """Retail orders change after a person says yes; a worker is killed with SIGKILL in the middle."""
    await stage.control.post(f"{stage.model_control}/pace", json={"first_token_ms": 60, "tokens_per_s": 0})
    chosen = [task for task in retail_tasks() if any(action.mutates for action in task.actions)][:TASKS]
    for task in chosen:
        query_id = f"task-{task.task_id}"
        stage.tasks[query_id] = task
        query = QueryAsked(thread_id=task.task_id, text=task.instruction, user_id=task.user_id)
        await stage.client.publish(query, tenant=f"shop-{task.task_id}", event_id=query_id)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_keep_deciding, stage)
        await stage.until(lambda: len(stage.witness.executed) >= TASKS // 3, "the first changes")
        pid = stage.crew.pid_of("worker-1")
        await stage.crew.kill("worker-1")
        stage.report.killed_workers += 1
        stage.say(f"    worker-1 (pid {pid}) killed with {_open_tasks(stage)} tasks unfinished; worker-3 joins")
        await stage.crew.start("worker-3")
        await stage.until(lambda: _open_tasks(stage) == 0, "the end of every task")
        tasks.cancel_scope.cancel()


async def _keep_deciding(stage: Stage) -> None:
    while True:
        await stage.approver.decide_new(stage.witness)
        await anyio.sleep(0.05)


def _open_tasks(stage: Stage) -> int:
    return sum(1 for query_id in stage.tasks if not stage.witness.streams[query_id].ended)


async def decide_again(stage: Stage) -> None:
    """A duplicate and a late decision come in; both are answered by name, and nothing runs."""
    executed = next(iter(stage.witness.executed))
    tenant, request = stage.witness.requests[executed]
    standing = next(one for one in stage.approver.sent.values() if one.approval_id == executed)
    twice = await stage.approver.send(
        tenant, request, standing.decision, person=standing.approver, suffix="again", arguments=standing.arguments
    )
    late = await stage.approver.send(tenant, request, "reject", person=standing.approver, suffix="late")
    await stage.until(lambda: {twice, late} <= set(stage.witness.refused), "the outcomes")
    codes = {stage.witness.refused[twice].code, stage.witness.refused[late].code}
    stage.say(f"    refused as {' and '.join(sorted(codes))}")


async def need_two(stage: Stage) -> None:
    """An edit that only a lead may approve: an agent proposes it, and it waits for the second person."""
    request = await _ordered(stage, SECOND_DESK, EDITED, "edit-by-two")
    payments = retail_seed()["users"][request.requester or ""]["payment_methods"]
    card = next(one for one in payments if one.startswith("credit_card_"))
    await stage.approver.send(SECOND_DESK, request, "edit", person="mia", arguments=request.arguments | {"payment_method_id": card})
    await stage.until(lambda: request.approval_id in stage.witness.amended, "mia's edit")
    amended = stage.witness.amended[request.approval_id]
    stage.say(f"    mia edits {request.tool} to be paid by {card}: the policy wants {' or '.join(amended.terms.roles)} for that")
    await stage.approver.send(SECOND_DESK, request, "approve", person="leo", args_digest=amended.args_digest)
    await stage.until(lambda: request.approval_id in stage.witness.executed, "the edited call")
    executed = stage.witness.executed[request.approval_id]
    stage.report.edits_by_two += executed.status == "ok" and executed.arguments["payment_method_id"] == card
    stage.say(f"    leo agrees to its digest; it ran as edited: {executed.status}")


async def let_time_pass(stage: Stage) -> None:
    """Nobody decides: people are reminded, a lead is told, and at the end of the time the answer is no."""
    forgotten = await _ordered(stage, QUIET_DESK, FORGOTTEN, "forgotten")
    await stage.until(lambda: forgotten.approval_id in stage.witness.executed, "the end of its time")
    ran = stage.witness.executed[forgotten.approval_id].status
    stage.say(f"    {forgotten.tool}: {len(stage.witness.reminded)} reminders, escalated, expired, {ran.replace('_', ' ')}")
    saved = await _ordered(stage, QUIET_DESK, SAVED, "saved")
    await stage.until(lambda: f"{saved.approval_id}:1" in stage.witness.escalated, "the escalation")
    await stage.approver.send(QUIET_DESK, saved, "approve", person="zoe")
    await stage.until(lambda: saved.approval_id in stage.witness.executed, "zoe's decision")
    stage.say(f"    {saved.tool}: escalated to a lead, zoe approves, {stage.witness.executed[saved.approval_id].status}")
    await stage.until(lambda: all(stage.witness.streams[one].ended for one in stage.orders), "their answers")


async def _ordered(stage: Stage, tenant: str, task_id: str, name: str) -> ApprovalRequested:
    """Order what a retail task's customer wants, and wait until it asks."""
    task = next(one for one in retail_tasks() if one.task_id == task_id)
    stage.orders[f"order-{name}"] = tenant
    query = QueryAsked(thread_id=name, text=task.instruction, user_id=task.user_id)
    await stage.client.publish(query, tenant=tenant, event_id=f"order-{name}")

    def asked() -> list[ApprovalRequested]:
        return [one for owner, one in stage.witness.requests.values() if (owner, one.thread_id) == (tenant, name)]

    await stage.until(lambda: bool(asked()), f"what {name} asks")
    return asked()[0]
