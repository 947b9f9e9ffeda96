"""What the topics, the index and the back office's own journal say at the end."""

from infra.local.data import datasets
from workers import audit, dead_letters
from workers.demo.end_states import same_changes
from workers.demo.stage import Stage


async def account_for(stage: Stage, *, tickets: int) -> None:
    """Count from the topics and from the back office's own journal."""
    report, witness = stage.report, stage.witness
    queries = [*stage.questions, *stage.tasks, *stage.orders]
    streams = [witness.streams[one] for one in queries]
    report.answers_completed = sum(1 for stream in streams if stream.completed)
    report.streams_true = sum(1 for stream in streams if stream.is_true())
    report.tasks_run = len(stage.tasks)
    report.approvals_requested = len(witness.requests)
    report.decisions_accepted = sum(1 for one in witness.accepted.values() if one.standing == "won")
    report.decisions_refused = len(witness.refused)
    report.decisions_edited = len(stage.approver.edited)
    report.decisions_rejected = len(stage.approver.rejected)
    report.votes_counted = sum(1 for one in witness.accepted.values() if one.standing == "counted")
    report.reminders, report.escalations, report.expired = len(witness.reminded), len(witness.escalated), len(witness.expired)
    undecided = sum(1 for one in stage.approver.sent if one not in witness.accepted and one not in witness.refused)
    unanswered = sum(1 for stream in streams if not stream.ended)
    untriaged = tickets - len(witness.triaged)
    still_dead = len(dead_letters.select(await stage.operations.load(), dead_letters.Filter()))
    report.tickets_triaged = len(witness.triaged)
    report.lost = undecided + unanswered + untriaged + still_dead + len(datasets.articles()) - report.articles_indexed
    summary = (await stage.control.get(f"{stage.host.stack.endpoints.back_office_url}/v1/journal/summary")).json()
    report.effects = summary["effects"]
    report.double_effects = summary["double_effects"]
    await _check_end_states(stage)
    await _check_chain(stage)


async def _check_end_states(stage: Stage) -> None:
    """Compare the back office's records with the known end states of the tasks that people left as they were."""
    changed_by_people = {_thread_of(stage, one) for one in stage.approver.edited | stage.approver.rejected}
    for task in stage.tasks.values():
        if task.task_id in changed_by_people:
            continue
        stage.report.end_states_expected += 1
        url = f"{stage.host.stack.endpoints.back_office_url}/v1/shop-{task.task_id}/changes"
        found = (await stage.control.get(url)).json()
        stage.report.end_states_right += same_changes(found, task)


def _thread_of(stage: Stage, approval_id: str) -> str:
    """The thread of an approval."""
    return stage.witness.requests[approval_id][1].thread_id


async def _check_chain(stage: Stage) -> None:
    """Prove from the topic alone that no outcome was changed, dropped or added."""
    findings = (await audit.audit(stage.host.settings)).findings
    for fault in findings.faults:
        stage.say(f"    broken chain of {fault.tenant}: {fault.what}")
    stage.report.outcomes_chained = 0 if findings.faults else findings.records
    stage.say(f"    audit: {findings.records} outcomes of {len(findings.proofs)} tenants, {len(findings.faults)} faults")
