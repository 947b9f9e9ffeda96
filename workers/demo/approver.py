"""A person at the gate, for the demo: decides what is asked, mostly yes, and sometimes twice or too late."""

from dataclasses import dataclass, field
from typing import Any

from topics.events import ApprovalDecided, ApprovalRequested, Decision
from workers.client import Client
from workers.demo.witness import Witness

OTHER_REASON = {"no longer needed": "ordered by mistake", "ordered by mistake": "no longer needed"}


@dataclass(slots=True)
class Approver:
    """Decides each request once; `sent` holds every decision by its id, extra ones included."""

    client: Client
    reject_every: int = 9
    edit_cancellations: bool = True
    sent: dict[str, ApprovalDecided] = field(default_factory=dict[str, ApprovalDecided])
    edited: set[str] = field(default_factory=set[str])
    rejected: set[str] = field(default_factory=set[str])
    _seen: set[str] = field(default_factory=set[str])

    async def decide_new(self, witness: Witness) -> None:
        """Answer every request that was not answered yet."""
        for approval_id, (tenant, request) in list(witness.requests.items()):
            if approval_id in self._seen:
                continue
            self._seen.add(approval_id)
            decision, arguments = self._choose(request)
            await self.send(tenant, request, decision, arguments=arguments, suffix="1")

    async def send(
        self,
        tenant: str,
        request: ApprovalRequested,
        decision: Decision,
        *,
        suffix: str,
        arguments: dict[str, Any] | None = None,
    ) -> str:
        """Publish one decision; returns its id."""
        decision_id = f"{request.approval_id}-{suffix}"
        decided = ApprovalDecided(
            approval_id=request.approval_id,
            thread_id=request.thread_id,
            decision=decision,
            args_digest=request.args_digest,
            approver="demo-approver",
            arguments=arguments,
            message="not today" if decision == "reject" else None,
        )
        self.sent[decision_id] = decided
        await self.client.publish(decided, tenant=tenant, event_id=decision_id)
        return decision_id

    def _choose(self, request: ApprovalRequested) -> tuple[Decision, dict[str, Any] | None]:
        reason = request.arguments.get("reason")
        if self.edit_cancellations and request.tool == "cancel_pending_order" and reason in OTHER_REASON and len(self.edited) < 3:
            self.edited.add(request.approval_id)
            return "edit", request.arguments | {"reason": OTHER_REASON[reason]}
        if self.reject_every and len(self._seen) % self.reject_every == 0:
            self.rejected.add(request.approval_id)
            return "reject", None
        return "approve", None
