"""Approvals in Redis: each a hash with its state, and beside it what lists, finds and wakes the open ones."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from redis.asyncio import Redis

from infra.redis.approval_index import ApprovalIndex, tags
from infra.redis.client import Script
from infra.redis.keys import APPROVAL_TTL, Keys, decode, encode, milliseconds
from topics.approval_state import ApprovalPage, ApprovalQuery, ApprovalState
from topics.events import ApprovalRequested, Verdict

# An open one never expires by itself. A name is `tenant/approval id`, encoded. `opened` is in microseconds, and no two open
# approvals have the same, so that a page can begin behind the one before.
# KEYS: open of all, open of the tenant, timers, approvals. ARGV: time to live of closed ones, then for each approval: name, state,
# revision, status, announced, when it was asked or nothing, what is due or nothing, tenant, tool, amount or nothing.
OPEN: Final = """
local time = redis.call('TIME')
for i = 4, #KEYS do
  local a = 1 + 10 * (i - 4)
  local name, status, asked, due = ARGV[a + 1], ARGV[a + 4], ARGV[a + 6], ARGV[a + 7]
  if redis.call('HSETNX', KEYS[i], 'status', status) == 1 then
    redis.call('HSET', KEYS[i], 'state', ARGV[a + 2], 'revision', ARGV[a + 3])
    if ARGV[a + 5] == '1' then redis.call('HSET', KEYS[i], 'announced', '1') end
    if status == 'pending' then
      local at = asked ~= '' and tonumber(asked) or time[1] * 1000000 + time[2]
      while redis.call('ZCOUNT', KEYS[1], at, at) > 0 do at = at + 1 end
      redis.call('ZADD', KEYS[1], at, name)
      redis.call('ZADD', KEYS[2], at, name)
      if due ~= '' then redis.call('ZADD', KEYS[3], due, name) end
      redis.call('HSET', KEYS[i], 'opened', string.format('%.0f', at), 'tenant', ARGV[a + 8], 'tool', ARGV[a + 9])
      if ARGV[a + 10] ~= '' then redis.call('HSET', KEYS[i], 'amount', ARGV[a + 10]) end
    else
      redis.call('PEXPIRE', KEYS[i], ARGV[1])
    end
  end
end
"""
# KEYS: approval, open of all, open of the tenant, timers. ARGV: name, revision before, revision, status, state, due or nothing,
# time to live.
STORE: Final = """
local known = redis.call('HMGET', KEYS[1], 'status', 'revision')
if not known[1] then return -1 end
if (known[2] or '0') ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 'state', ARGV[5], 'status', ARGV[4], 'revision', ARGV[3])
redis.call('HDEL', KEYS[1], 'tries', 'request', 'verdict')
if ARGV[4] ~= 'pending' then
  redis.call('HDEL', KEYS[1], 'tenant', 'tool', 'opened', 'amount')
  redis.call('PEXPIRE', KEYS[1], ARGV[7])
  redis.call('ZREM', KEYS[2], ARGV[1])
  redis.call('ZREM', KEYS[3], ARGV[1])
end
if ARGV[4] ~= 'pending' or ARGV[6] == '' then
  redis.call('ZREM', KEYS[4], ARGV[1])
else
  redis.call('ZADD', KEYS[4], ARGV[6], ARGV[1])
end
return 1
"""
ANNOUNCED: Final = "if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('HSET', KEYS[1], 'announced', '1') end"
# KEYS: open of all or of a tenant. ARGV: from, to, how many are left out, limit. Names, with when each was opened.
LISTED: Final = "return redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[1], ARGV[2], 'WITHSCORES', 'LIMIT', ARGV[3], ARGV[4])"
# KEYS: timers. ARGV: now, limit. What is put off longer each time is not forgotten, and does not fill its topic either.
DUE: Final = """
return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])
"""
# KEYS: timers, approvals. ARGV: now, shortest delay, longest delay, names. A moment that was moved meanwhile stays.
PUT_OFF: Final = """
for i = 2, #KEYS do
  local name, at = ARGV[i + 2], redis.call('ZSCORE', KEYS[1], ARGV[i + 2])
  if redis.call('EXISTS', KEYS[i]) == 0 then
    redis.call('ZREM', KEYS[1], name)
  elseif at and tonumber(at) <= tonumber(ARGV[1]) then
    local tries = redis.call('HINCRBY', KEYS[i], 'tries', 1)
    local delay = math.min(tonumber(ARGV[3]), tonumber(ARGV[2]) * 2 ^ (tries - 1))
    redis.call('ZADD', KEYS[1], string.format('%.6f', tonumber(ARGV[1]) + delay), name)
  end
end
"""
READ: Final = """
local found = {}
for i, key in ipairs(KEYS) do
  found[i] = redis.call('HMGET', key, 'status', 'state', 'announced', 'request', 'verdict')
end
return found
"""

PUT_OFF_S: Final = 30
PUT_OFF_AT_MOST_S: Final = 3_600
READ_AT_ONCE: Final = 500
WINDOWS: Final = (1_000, 10_000)


class RedisApprovalRegistry:
    """Approvals, kept while they are open and for 90 days after. What is stored is on disk when a call returns.

    Every call raises OutageError when Redis does not answer; whether it took effect is then unknown, and repeating it is safe.
    """

    def __init__(self, client: Redis, *, keys: Keys | None = None) -> None:
        self._client = client
        self._keys = keys or Keys()
        self._index = ApprovalIndex(client, self._keys)
        self._open = Script(client, OPEN)
        self._store = Script(client, STORE)
        self._announced = Script(client, ANNOUNCED)
        self._listed = Script(client, LISTED)
        self._due = Script(client, DUE)
        self._put_off = Script(client, PUT_OFF)
        self._read = Script(client, READ)

    async def prepare(self) -> None:
        """Create the search index if there is none; any number of workers may do it at once."""
        await self._index.prepare()

    async def open(self, tenant: str, requests: Sequence[ApprovalRequested]) -> None:
        """Register requests before they are published. One that is known stays as it is."""
        await self.restore([ApprovalState(tenant=tenant, request=request) for request in requests])

    async def restore(self, states: Sequence[ApprovalState]) -> None:
        """Put approvals back as they were, with all that lists, finds and wakes them. One that is known stays as it is."""
        for tenant in dict.fromkeys(state.tenant for state in states):
            of_tenant = [state for state in states if state.tenant == tenant]
            shared = [self._keys.open_approvals(None), self._keys.open_approvals(tenant), self._keys.approval_timers()]
            approvals = [self._keys.approval(tenant, state.request.approval_id) for state in of_tenant]
            arguments = [part for state in of_tenant for part in _row(state)]
            # One that is known may be an earlier attempt's, which did not live to see it on disk.
            row = [milliseconds(APPROVAL_TTL), *arguments]
            await self._open.durable([*shared, *approvals], row, behind=self._keys.durable())

    async def announced(self, tenant: str, approval_id: str) -> None:
        """Remember that the broker has the request. Not waited for: forgotten, it is published once more."""
        await self._announced([self._keys.approval(tenant, approval_id)])

    async def find(self, tenant: str, approval_id: str) -> ApprovalState | None:
        """One approval of this tenant; another tenant's is unknown."""
        [fields] = await self._read([self._keys.approval(tenant, approval_id)])
        return _state(tenant, fields)

    async def store(self, state: ApprovalState) -> bool:
        """Replace the revision before this one. False when another is there: look again.

        Raises:
            LookupError: The tenant has no such approval.
        """
        tenant, approval_id = state.tenant, state.request.approval_id
        keys = [
            self._keys.approval(tenant, approval_id),
            self._keys.open_approvals(None),
            self._keys.open_approvals(tenant),
            self._keys.approval_timers(),
        ]
        name, before = _name(tenant, approval_id), str(state.revision - 1)
        row = [name, before, str(state.revision), state.status, _json(state), _due_at(state), milliseconds(APPROVAL_TTL)]
        # Lost to another revision, that one is on disk before anybody is told of it.
        answer = await self._store.durable(keys, row, behind=self._keys.durable())
        if answer == -1:
            raise LookupError(f"tenant {tenant} has no approval {approval_id}")
        return answer == 1

    async def withdraw(self, tenant: str, approval_id: str, reason: str = "") -> ApprovalState:
        """Take a pending request back. Returns what stands now: a verdict that was first stays.

        Raises:
            LookupError: The tenant has no such approval.
        """
        while True:
            found = await self.find(tenant, approval_id)
            if found is None:
                raise LookupError(f"tenant {tenant} has no approval {approval_id}")
            after = found.withdrawn(reason)
            if after is found or await self.store(after):
                return after

    async def pending(self, tenant: str | None, *, limit: int) -> Sequence[ApprovalState]:
        """Open approvals, oldest first, of one tenant or of all."""
        return (await self.search(ApprovalQuery(tenant, limit=limit))).approvals

    async def search(self, query: ApprovalQuery) -> ApprovalPage:
        """Open approvals that match, oldest first, a page at a time.

        Raises:
            ValueError: The cursor is not one of a page's.
            OutageError: `search_index_missing`: filters need the index that `prepare` makes.
        """
        if query.limit < 1:
            return ApprovalPage(())
        since, until = await self._span(query)
        if query.tool is None and query.min_amount is None and query.max_amount is None:
            listed = await self._listed([self._keys.open_approvals(query.tenant)], [since, until, 0, query.limit + 1])
            found = [(_parts(name), int(float(at))) for name, at in zip(listed[::2], listed[1::2], strict=True)]
        else:
            found = [(_parts_of_key(key), at) for key, at in await self._filtered(query, since, until)]
        page, more = found[: query.limit], len(found) > query.limit
        states = await self._states([name for name, _ in page])
        # Between the two reads some were decided.
        return ApprovalPage(tuple(one for one in states if one.status == "pending"), str(page[-1][1]) if more else None)

    async def due(self, now: datetime, *, limit: int) -> Sequence[ApprovalState]:
        """Open approvals about which something is to be done by now, soonest first; each is put off for a while.

        The longer nothing comes of one the rarer it comes again, at least once an hour.
        """
        at = f"{now.timestamp():.6f}"
        named = list(await self._due([self._keys.approval_timers()], [at, limit]))
        if not named:
            return []
        names = [_parts(name) for name in named]
        keys = [self._keys.approval_timers(), *(self._keys.approval(*name) for name in names)]
        await self._put_off(keys, [at, PUT_OFF_S, PUT_OFF_AT_MOST_S, *named])
        return await self._states(names)

    async def all(self) -> Sequence[ApprovalState]:
        """Every approval, open and closed, of all tenants, in no order. For rebuilding and comparing."""
        keys = [
            key.decode()
            async for key in _client(self._client).scan_iter(match=f"{_glob(self._keys.every_approval())}*", count=1000)
        ]
        return await self._states([_parts_of_key(key) for key in keys])

    async def timers(self) -> dict[tuple[str, str], float]:
        """What is due when, in seconds of the epoch, by tenant and approval."""
        rows = await self._listed([self._keys.approval_timers()], ["-inf", "+inf", 0, -1])
        return {_parts(name): float(at) for name, at in zip(rows[::2], rows[1::2], strict=True)}

    async def _filtered(self, query: ApprovalQuery, since: str, until: str) -> list[tuple[str, int]]:
        """Look among the oldest first: the index sorts all that match, however many, before it gives a page."""
        for window in WINDOWS:
            [*_, behind] = await self._listed([self._keys.open_approvals(query.tenant)], [since, until, window, 1]) or [None]
            if behind is None:
                break
            found = await self._index.find(query, since=since, until=behind.decode())
            if len(found) > query.limit:
                return found
        return await self._index.find(query, since=since, until=until)

    async def _span(self, query: ApprovalQuery) -> tuple[str, str]:
        """Microseconds, from and to, of when the approvals of a page were opened."""
        since = "-inf" if query.cursor is None else f"({int(query.cursor)}"
        if query.older_than_s is None:
            return since, "+inf"
        seconds, micros = await _client(self._client).time()
        return since, str(seconds * 1_000_000 + micros - round(query.older_than_s * 1_000_000))

    async def _states(self, names: Sequence[tuple[str, str]]) -> list[ApprovalState]:
        found: list[ApprovalState | None] = []
        for start in range(0, len(names), READ_AT_ONCE):
            some = names[start : start + READ_AT_ONCE]
            rows = await self._read([self._keys.approval(*name) for name in some])
            found += [_state(tenant, row) for (tenant, _), row in zip(some, rows, strict=True)]
        return [one for one in found if one is not None]


def _row(state: ApprovalState) -> list[str | int]:
    request = state.request
    asked_at = request.requested_at
    return [
        _name(state.tenant, request.approval_id),
        _json(state),
        state.revision,
        state.status,
        "1" if state.announced else "",
        "" if asked_at is None else round(asked_at.timestamp() * 1_000_000),
        _due_at(state),
        *tags(state.tenant, request.tool),
        "" if request.amount is None else request.amount,
    ]


def _json(state: ApprovalState) -> str:
    return state.model_dump_json(exclude={"announced"})


def _due_at(state: ApprovalState) -> str:
    moments = state.moments()
    return f"{moments[0].at.timestamp():.6f}" if moments else ""


def _state(tenant: str, fields: Sequence[Any]) -> ApprovalState | None:
    status, state, announced, request, verdict = fields
    if status is None:
        return None
    if state is None:
        # Registered by a build that kept one vote. It had published what it registered.
        return ApprovalState(
            tenant=tenant,
            request=ApprovalRequested.model_validate_json(request),
            status=status.decode(),
            verdict=Verdict.model_validate_json(verdict) if verdict else None,
            announced=True,
        )
    found = ApprovalState.model_validate_json(state)
    return found.model_copy(update={"announced": announced is not None})


def _name(tenant: str, approval_id: str) -> str:
    return f"{encode(tenant)}/{encode(approval_id)}"


def _parts(name: bytes) -> tuple[str, str]:
    tenant, approval_id = name.decode().split("/")
    return decode(tenant), decode(approval_id)


def _parts_of_key(key: str) -> tuple[str, str]:
    tenant, approval_id = key.split(":")[-2:]
    return decode(tenant), decode(approval_id)


def _glob(text: str) -> str:
    return "".join(f"\\{letter}" if letter in "*?[]\\" else letter for letter in text)


def _client(client: Redis) -> Any:
    return client
