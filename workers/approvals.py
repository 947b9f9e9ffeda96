"""Decisions of people: judged, recorded once, answered always, and applied to the thread that waits."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from flows.agent.threads import Agent, GraphVersionError, StaleApprovalError, ThreadGoneError, ThreadRef
from topics.envelope import Event
from topics.events import ApprovalAccepted, ApprovalDecided, ApprovalRefused, Payload, RefusalCode, Verdict
from workers.conversation import Conversation
from workers.ports import ApprovalRegistry, Registered


async def handle_decision(
    event: Event[ApprovalDecided], *, agent: Agent, registry: ApprovalRegistry, conversation: Conversation
) -> AsyncGenerator[Payload]:
    """Record the first valid decision and resume its thread; tell every other sender why theirs did not count (P3, P4)."""
    decided = event.payload
    known = await registry.find(event.tenant, decided.approval_id)
    verdict = _verdict(event)
    refusal = judge(known, decided, verdict, tenant=event.tenant, agent=agent)
    if refusal is None and known is not None:
        refusal = await _gone(event.tenant, known, agent)
    if refusal is None and known is not None:
        known = await registry.decide(event.tenant, decided.approval_id, verdict)
        refusal = _closed(known, verdict)
        if refusal is None:
            async with aclosing(_apply(event, known, verdict, conversation)) as payloads:
                async for payload in payloads:
                    yield payload
            return
    if refusal is not None:
        yield _refused(event, refusal, known)
        if refusal[0] == "graph_version":
            # Nothing was recorded. The dead letter can be replayed when a build that knows the thread runs again.
            raise GraphVersionError(refusal[1])


def judge(
    known: Registered | None, decided: ApprovalDecided, verdict: Verdict, *, tenant: str, agent: Agent
) -> tuple[RefusalCode, str] | None:
    """Why a decision cannot count, or None. Order matters: what is not known to the sender is not told."""
    if known is None:
        return "unknown", "no such approval"
    request = known.request
    if decided.thread_id != request.thread_id:
        return "mismatch", "the approval belongs to another thread"
    if closed := _closed(known, verdict):
        return closed
    if decided.args_digest != request.args_digest:
        return "mismatch", "the digest is not that of what waits"
    if decided.decision not in request.allowed_decisions:
        return "forbidden", f"allowed here: {', '.join(request.allowed_decisions)}"
    if decided.decision == "edit":
        problem = agent.check_edit(request, tool=decided.tool, arguments=decided.arguments, tenant=tenant)
        if problem:
            return "invalid_edit", f"{problem.code}: {problem.detail}"
    if known.status == "pending" and request.graph_version != agent.graph_version:
        return "graph_version", f"the thread was paused by graph {request.graph_version}"
    return None


async def _gone(tenant: str, known: Registered, agent: Agent) -> tuple[RefusalCode, str] | None:
    """Look before a verdict is recorded: one for a thread that is lost would stand, and could never be applied."""
    if known.status != "pending" or (await agent.status(ThreadRef(tenant, known.request.thread_id))).exists:
        return None
    return "thread_gone", "the thread has no checkpoint"


def _closed(standing: Registered, verdict: Verdict) -> tuple[RefusalCode, str] | None:
    """Whether something else stands. Our own verdict may be delivered again: then nothing is lost."""
    if standing.status == "withdrawn":
        return "stale", "the action is no longer wanted"
    if standing.status == "expired":
        return "expired", "nobody decided in time"
    winner = standing.verdict
    if winner is None or winner == verdict:
        return None
    same = (winner.decision, winner.arguments) == (verdict.decision, verdict.arguments)
    return ("duplicate", "decided the same way before") if same else ("late", "decided otherwise before")


async def _apply(
    event: Event[ApprovalDecided], known: Registered, verdict: Verdict, conversation: Conversation
) -> AsyncGenerator[Payload]:
    request = known.request
    yield ApprovalAccepted(
        approval_id=request.approval_id,
        thread_id=request.thread_id,
        decision_id=verdict.decision_id,
        decision=verdict.decision,
        approver=verdict.approver,
    )
    try:
        thread = ThreadRef(event.tenant, request.thread_id)
        async with aclosing(conversation.resume(thread, approval_id=request.approval_id, verdict=verdict)) as payloads:
            async for payload in payloads:
                yield payload
    except (StaleApprovalError, ThreadGoneError) as error:
        yield _refused(event, ("thread_gone" if isinstance(error, ThreadGoneError) else "stale", str(error)), known)
    except GraphVersionError as error:
        # The verdict stands. Its dead letter can be replayed when a build that knows the thread runs again.
        yield _refused(event, ("graph_version", str(error)), known)
        raise


def _verdict(event: Event[ApprovalDecided]) -> Verdict:
    decided = event.payload
    return Verdict(
        decision_id=event.id,
        decision=decided.decision,
        approver=decided.approver,
        arguments=decided.arguments if decided.decision == "edit" else None,
        message=decided.message,
    )


def _refused(event: Event[ApprovalDecided], refusal: tuple[RefusalCode, str], known: Registered | None) -> ApprovalRefused:
    code, detail = refusal
    return ApprovalRefused(
        approval_id=event.payload.approval_id,
        thread_id=event.payload.thread_id,
        decision_id=event.id,
        code=code,
        detail=detail,
        winner=known.verdict if known and code in {"duplicate", "late"} else None,
    )
