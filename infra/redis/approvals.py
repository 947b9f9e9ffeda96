"""Approvals in Redis: what was asked, and the one verdict of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from redis.asyncio import Redis

from infra.redis.client import Script, wait_durable
from infra.redis.keys import APPROVAL_TTL, Keys, decode, encode, milliseconds
from topics.events import ApprovalRequested, Verdict

Status = Literal["pending", "decided", "withdrawn", "expired"]

# KEYS: open of all, open of the tenant, approvals. ARGV: name and request of each approval. An open one never expires by itself.
# The server's clock orders the requests of all workers; the ordinal keeps those of one call in their order.
OPEN: Final = """
local now = redis.call('TIME')
local at = now[1] * 1000000 + now[2]
for i = 3, #KEYS do
  local name = ARGV[2 * i - 5]
  if redis.call('HSETNX', KEYS[i], 'status', 'pending') == 1 then
    redis.call('HSET', KEYS[i], 'request', ARGV[2 * i - 4])
    redis.call('ZADD', KEYS[1], at + i, name)
    redis.call('ZADD', KEYS[2], at + i, name)
  end
end
"""
# KEYS: approval, open of all, open of the tenant. ARGV: name, status, verdict or nothing, time to live.
CLOSE: Final = """
local status = redis.call('HGET', KEYS[1], 'status')
if not status then return {} end
if status == 'pending' then
  redis.call('HSET', KEYS[1], 'status', ARGV[2])
  if ARGV[3] ~= '' then redis.call('HSET', KEYS[1], 'verdict', ARGV[3]) end
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
  redis.call('ZREM', KEYS[2], ARGV[1])
  redis.call('ZREM', KEYS[3], ARGV[1])
end
return redis.call('HMGET', KEYS[1], 'status', 'request', 'verdict')
"""
# KEYS: open of all or of a tenant. ARGV: limit.
PENDING: Final = "return redis.call('ZRANGE', KEYS[1], 0, ARGV[1] - 1)"
READ: Final = """
local found = {}
for i, key in ipairs(KEYS) do found[i] = redis.call('HMGET', key, 'status', 'request', 'verdict') end
return found
"""


@dataclass(frozen=True, slots=True)
class Registered:
    """An approval as the registry knows it. `status` is `pending` until a verdict, a withdrawal or the end of its time."""

    tenant: str
    request: ApprovalRequested
    status: Status
    verdict: Verdict | None = None


class RedisApprovalRegistry:
    """Requests, kept while they are open, and verdicts, kept for 90 days. Everything is on disk when a call returns.

    Every call raises OutageError when Redis does not answer; whether it took effect is then unknown, and repeating it is safe.
    """

    def __init__(self, client: Redis, *, keys: Keys | None = None) -> None:
        self._client = client
        self._keys = keys or Keys()
        self._open = Script(client, OPEN)
        self._close = Script(client, CLOSE)
        self._read = Script(client, READ)
        self._pending = Script(client, PENDING)

    async def open(self, tenant: str, requests: Sequence[ApprovalRequested]) -> None:
        """Register requests before they are published. One that is known stays as it is."""
        if not requests:
            return
        arguments: list[str] = []
        for request in requests:
            arguments += [_name(tenant, request.approval_id), request.model_dump_json()]
        approvals = [self._keys.approval(tenant, request.approval_id) for request in requests]
        await self._open([self._keys.open_approvals(None), self._keys.open_approvals(tenant), *approvals], arguments)
        await wait_durable(self._client, keys=self._keys)

    async def find(self, tenant: str, approval_id: str) -> Registered | None:
        """One approval of this tenant; another tenant's is unknown."""
        [fields] = await self._read([self._keys.approval(tenant, approval_id)])
        return _registered(tenant, fields)

    async def decide(self, tenant: str, approval_id: str, verdict: Verdict) -> Registered:
        """Record the verdict if the approval is pending. Returns what stands now.

        Raises:
            LookupError: The tenant has no such approval.
        """
        return await self._closed(tenant, approval_id, "decided", verdict.model_dump_json())

    async def withdraw(self, tenant: str, approval_id: str) -> Registered:
        """Take a pending request back. Returns what stands now: a verdict that was first stays.

        Raises:
            LookupError: The tenant has no such approval.
        """
        return await self._closed(tenant, approval_id, "withdrawn")

    async def expire(self, tenant: str, approval_id: str) -> Registered:
        """End a pending request whose time is over. Returns what stands now: a verdict that was first stays.

        Raises:
            LookupError: The tenant has no such approval.
        """
        return await self._closed(tenant, approval_id, "expired")

    async def pending(self, tenant: str | None, *, limit: int) -> Sequence[Registered]:
        """Open approvals, oldest first, of one tenant or of all."""
        if limit < 1:
            return []
        names = [_parts(name) for name in await self._pending([self._keys.open_approvals(tenant)], [limit])]
        if not names:
            return []
        rows = await self._read([self._keys.approval(*name) for name in names])
        found = [_registered(owner, row) for (owner, _), row in zip(names, rows, strict=True)]
        # Between the two reads some were decided.
        return [registered for registered in found if registered and registered.status == "pending"]

    async def _closed(self, tenant: str, approval_id: str, status: Status, verdict: str = "") -> Registered:
        keys = [
            self._keys.approval(tenant, approval_id),
            self._keys.open_approvals(None),
            self._keys.open_approvals(tenant),
        ]
        fields = await self._close(keys, [_name(tenant, approval_id), status, verdict, milliseconds(APPROVAL_TTL)])
        registered = _registered(tenant, fields)
        if registered is None:
            raise LookupError(f"tenant {tenant} has no approval {approval_id}")
        await wait_durable(self._client, keys=self._keys)
        return registered


def _name(tenant: str, approval_id: str) -> str:
    return f"{encode(tenant)}/{encode(approval_id)}"


def _parts(name: bytes) -> tuple[str, str]:
    tenant, approval_id = name.decode().split("/")
    return decode(tenant), decode(approval_id)


def _registered(tenant: str, fields: Sequence[Any]) -> Registered | None:
    if not fields or fields[0] is None:
        return None
    status, request, verdict = fields
    return Registered(
        tenant=tenant,
        request=ApprovalRequested.model_validate_json(request),
        status=status.decode(),
        verdict=Verdict.model_validate_json(verdict) if verdict else None,
    )
