"""The approval registry in memory."""

from collections.abc import Sequence
from dataclasses import replace

from infra.redis.approvals import Registered, Status
from topics.events import ApprovalRequested, Verdict


class MemoryApprovalRegistry:
    """Approvals in a dict, in the order they were opened."""

    def __init__(self) -> None:
        self.approvals: dict[tuple[str, str], Registered] = {}

    async def open(self, tenant: str, requests: Sequence[ApprovalRequested]) -> None:
        for request in requests:
            self.approvals.setdefault((tenant, request.approval_id), Registered(tenant, request, "pending"))

    async def find(self, tenant: str, approval_id: str) -> Registered | None:
        return self.approvals.get((tenant, approval_id))

    async def decide(self, tenant: str, approval_id: str, verdict: Verdict) -> Registered:
        return self._close(tenant, approval_id, "decided", verdict)

    async def withdraw(self, tenant: str, approval_id: str) -> Registered:
        return self._close(tenant, approval_id, "withdrawn")

    async def expire(self, tenant: str, approval_id: str) -> Registered:
        return self._close(tenant, approval_id, "expired")

    async def pending(self, tenant: str | None, *, limit: int) -> Sequence[Registered]:
        found = [known for known in self.approvals.values() if known.status == "pending" and tenant in {None, known.tenant}]
        return found[:limit]

    def _close(self, tenant: str, approval_id: str, status: Status, verdict: Verdict | None = None) -> Registered:
        known = self.approvals.get((tenant, approval_id))
        if known is None:
            raise LookupError(f"tenant {tenant} has no approval {approval_id}")
        if known.status == "pending":
            known = self.approvals[tenant, approval_id] = replace(known, status=status, verdict=verdict)
        return known
