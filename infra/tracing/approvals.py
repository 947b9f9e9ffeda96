"""Approvals that remember where they were asked, so that what a decision leads to is linked to its request, days later too."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from opentelemetry.trace import Span

from infra.redis.approvals import RedisApprovalRegistry
from infra.redis.client import outages
from infra.redis.keys import APPROVAL_TTL
from infra.tracing import names, scope
from infra.tracing.records import context_of, traceparent_of
from topics.approval_state import ApprovalState
from topics.errors import OutageError
from topics.events import ApprovalRequested

REQUESTED: Final = "requested_in"


class TracedApprovals(RedisApprovalRegistry):
    """The registry, with the span of each request beside it. A link may be lost with a crash; an approval is not."""

    async def open(self, tenant: str, requests: Sequence[ApprovalRequested]) -> None:
        """Register requests, and where they came from."""
        await super().open(tenant, requests)
        here = scope.current()
        if here is None or not here.unit.span.is_recording():
            return
        parent = traceparent_of(here.unit.span)
        with suppress(OutageError), outages():
            for request in requests:
                await self._client.set(self._keys.approval_trace(tenant, request.approval_id), parent, px=APPROVAL_TTL, nx=True)

    async def find(self, tenant: str, approval_id: str) -> ApprovalState | None:
        """One approval; the span of who looks is linked to the span that asked."""
        found = await super().find(tenant, approval_id)
        here = scope.current()
        if found is not None and here is not None and here.unit.span.is_recording():
            with suppress(OutageError), outages():
                await self._link(here.unit.span, self._keys.approval_trace(tenant, approval_id))
        return found

    async def _link(self, span: Span, key: str) -> None:
        kept = await self._client.get(key)
        origin = context_of(kept.decode() if isinstance(kept, bytes) else kept)
        if origin is not None:
            span.add_link(origin, {names.RELATION: REQUESTED})
