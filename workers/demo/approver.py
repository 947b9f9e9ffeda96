"""The people at the gate, for the demo: they decide what is asked, mostly yes, and sometimes twice or too late."""

from dataclasses import dataclass, field
from typing import Any

from topics.events import ApprovalDecided, ApprovalRequested, Decision
from workers.client import Client
from workers.demo.people import People
from workers.demo.witness import Witness

OTHER_REASON = {"no longer needed": "ordered by mistake", "ordered by mistake": "no longer needed"}


@dataclass(slots=True)
class Approver:
    """Answers each request once, by as many people as it wants; `sent` holds every decision by its id, extra ones included.

    Requests of the tenants in `left_alone` are for somebody else.
    """

    client: Client
    people: People
    left_alone: frozenset[str] = frozenset()
    reject_every: int = 9
    edits: int = 3
    sent: dict[str, ApprovalDecided] = field(default_factory=dict[str, ApprovalDecided])
    edited: set[str] = field(default_factory=set[str])
    rejected: set[str] = field(default_factory=set[str])
    _seen: set[str] = field(default_factory=set[str])

    async def decide_new(self, witness: Witness) -> None:
        """Answer every request that was not answered yet."""
        for approval_id, (tenant, request) in list(witness.requests.items()):
            if approval_id in self._seen or tenant in self.left_alone:
                continue
            self._seen.add(approval_id)
            decision, arguments = self._choose(request)
            people = self.people.who_may(request.terms)
            for person in people if decision == "approve" else people[:1]:
                await self.send(tenant, request, decision, person=person, arguments=arguments)

    async def send(
        self,
        tenant: str,
        request: ApprovalRequested,
        decision: Decision,
        *,
        person: str,
        suffix: str = "1",
        arguments: dict[str, Any] | None = None,
        args_digest: str | None = None,
    ) -> str:
        """Publish one signed decision; returns its id."""
        decision_id = f"{request.approval_id}-{person}-{suffix}"
        decided = ApprovalDecided(
            approval_id=request.approval_id,
            thread_id=request.thread_id,
            decision=decision,
            args_digest=args_digest or request.args_digest,
            approver=person,
            arguments=arguments,
            message="not today" if decision == "reject" else None,
        )
        key = self.people.keys[person]
        self.sent[decision_id] = key.sign(decided, tenant=tenant, tool=request.tool, now=self.client.clock.now())
        await self.client.publish(self.sent[decision_id], tenant=tenant, event_id=decision_id)
        return decision_id

    def _choose(self, request: ApprovalRequested) -> tuple[Decision, dict[str, Any] | None]:
        reason = request.arguments.get("reason")
        if request.tool == "cancel_pending_order" and reason in OTHER_REASON and len(self.edited) < self.edits:
            self.edited.add(request.approval_id)
            return "edit", request.arguments | {"reason": OTHER_REASON[reason]}
        if self.reject_every and len(self._seen) % self.reject_every == 0:
            self.rejected.add(request.approval_id)
            return "reject", None
        return "approve", None
