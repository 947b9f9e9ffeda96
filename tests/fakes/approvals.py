"""The approval registry in memory."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from tests.fakes.clock import FakeClock
from topics.approval_state import ApprovalPage, ApprovalQuery, ApprovalState
from topics.events import ApprovalRequested


class MemoryApprovalRegistry:
    """Approvals in a dict. `opened` orders them, in microseconds, and none has another's."""

    def __init__(self, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self.approvals: dict[tuple[str, str], ApprovalState] = {}
        self.opened: dict[tuple[str, str], int] = {}
        self.wake_at: dict[tuple[str, str], datetime] = {}
        self.tries: dict[tuple[str, str], int] = {}

    async def prepare(self) -> None:
        """Nothing is needed."""

    async def open(self, tenant: str, requests: Sequence[ApprovalRequested]) -> None:
        await self.restore([ApprovalState(tenant=tenant, request=request) for request in requests])

    async def restore(self, states: Sequence[ApprovalState]) -> None:
        for state in states:
            name = (state.tenant, state.request.approval_id)
            if name in self.approvals:
                continue
            at = round((state.request.requested_at or self.clock.now()).timestamp() * 1_000_000)
            while at in self.opened.values():
                at += 1
            self.opened[name] = at
            self._keep(state)

    async def announced(self, tenant: str, approval_id: str) -> None:
        if known := self.approvals.get((tenant, approval_id)):
            self.approvals[tenant, approval_id] = known.model_copy(update={"announced": True})

    async def find(self, tenant: str, approval_id: str) -> ApprovalState | None:
        return self.approvals.get((tenant, approval_id))

    async def store(self, state: ApprovalState) -> bool:
        known = self.approvals.get((state.tenant, state.request.approval_id))
        if known is None:
            raise LookupError(f"tenant {state.tenant} has no approval {state.request.approval_id}")
        if known.revision != state.revision - 1:
            return False
        self._keep(state.model_copy(update={"announced": known.announced}))
        return True

    async def withdraw(self, tenant: str, approval_id: str, reason: str = "") -> ApprovalState:
        known = self.approvals.get((tenant, approval_id))
        if known is None:
            raise LookupError(f"tenant {tenant} has no approval {approval_id}")
        after = known.withdrawn(reason)
        if after is not known:
            await self.store(after)
        return after

    async def pending(self, tenant: str | None, *, limit: int) -> Sequence[ApprovalState]:
        return (await self.search(ApprovalQuery(tenant, limit=limit))).approvals

    async def search(self, query: ApprovalQuery) -> ApprovalPage:
        since = int(query.cursor) if query.cursor else 0
        until = None if query.older_than_s is None else self.clock.now().timestamp() - query.older_than_s
        found = [
            (at, known)
            for at, known in sorted(
                (self.opened[name], known) for name, known in self.approvals.items() if known.status == "pending"
            )
            if query.tenant in {None, known.tenant}
            and query.tool in {None, known.request.tool}
            and at > since
            and (until is None or at / 1_000_000 <= until)
            and _within(known.request.amount, query.min_amount, query.max_amount)
        ]
        page = found[: max(0, query.limit)]
        more = len(found) > len(page) and page
        return ApprovalPage(tuple(known for _, known in page), str(page[-1][0]) if more else None)

    async def due(self, now: datetime, *, limit: int) -> Sequence[ApprovalState]:
        names = sorted((at, name) for name, at in self.wake_at.items() if at <= now)[:limit]
        for _, name in names:
            self.tries[name] = self.tries.get(name, 0) + 1
            self.wake_at[name] = now + timedelta(seconds=min(3_600, 30 * 2 ** (self.tries[name] - 1)))
        return [self.approvals[name] for _, name in names]

    def _keep(self, state: ApprovalState) -> None:
        name = (state.tenant, state.request.approval_id)
        self.approvals[name] = state
        self.tries.pop(name, None)
        self.wake_at.pop(name, None)
        if moments := state.moments():
            self.wake_at[name] = moments[0].at


def _within(amount: int | None, low: int | None, high: int | None) -> bool:
    if low is None and high is None:
        return True
    return amount is not None and (low is None or low <= amount) and (high is None or amount <= high)
