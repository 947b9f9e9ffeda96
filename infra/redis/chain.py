"""The chain of a tenant's outcomes in Redis: its head, each outcome as it was linked, and what may not be published yet.

The digest of a link needs the one before, and Lua has no SHA-256: so a link is made here and put on by compare-and-set on the
head. Who loses the race makes another one; each failure means that somebody else got on.
"""

from collections.abc import AsyncIterable, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol, cast

import anyio
import orjson
from redis.asyncio import Redis

from infra.redis.client import Script, outages, wait_durable
from infra.redis.keys import APPROVAL_TTL, Keys, milliseconds
from topics.chain import GENESIS, Outcome, content_of, linked
from topics.events import ApprovalAccepted, ApprovalExecuted, ApprovalExpired, ApprovalRefused

TYPES: Final = {model.TYPE: model for model in (ApprovalAccepted, ApprovalRefused, ApprovalExpired, ApprovalExecuted)}
SEED_BATCH: Final = 500

# KEYS: head, outcome, untold. ARGV: number and digest of the head we know, outcome, its digest, its untold entry, time to live,
# and whether a tenant without a head may begin one: what its topic holds is known then.
APPEND: Final = """
local known = redis.call('GET', KEYS[2])
if known then return {'known', known} end
local head = redis.call('HMGET', KEYS[1], 'number', 'digest')
if not head[1] then
  if ARGV[7] ~= '1' then return {'headless'} end
elseif head[1] ~= ARGV[1] or head[2] ~= ARGV[2] then
  return {'moved', head[1], head[2]}
end
local number = ARGV[1] + 1
redis.call('HSET', KEYS[1], 'number', number, 'digest', ARGV[4])
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[6])
redis.call('HSET', KEYS[3], number, ARGV[5])
return {'linked'}
"""
# KEYS: untold. ARGV: how the entries of a cause begin. Those of everything else that a tenant has under way stay on the server.
UNTOLD: Final = """
local entries, found = redis.call('HGETALL', KEYS[1]), {}
for at = 1, #entries, 2 do
  if string.sub(entries[at + 1], 1, #ARGV[1]) == ARGV[1] then
    found[#found + 1] = {entries[at], entries[at + 1]}
  end
end
return found
"""
# KEYS: head. ARGV: number, digest. A head that is there is never older than what the topic says.
SEED: Final = """
local number = redis.call('HGET', KEYS[1], 'number')
if not number or tonumber(number) < tonumber(ARGV[1]) then
  redis.call('HSET', KEYS[1], 'number', ARGV[1], 'digest', ARGV[2])
end
"""


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> datetime:
        """The current instant, aware, UTC."""
        ...


@dataclass(frozen=True, slots=True)
class Head:
    """The last link of a tenant, and the numbers that were given and may not be on the topic yet."""

    number: int
    digest: str
    untold: frozenset[int] = frozenset()


@dataclass(slots=True)
class RedisAuditChain:
    """Gives outcomes their links. `recover` tells what the topic holds, for a Redis that has lost the chain.

    `scope` tells chains apart that share a Redis and not a topic.
    Every call raises OutageError when Redis does not answer; whether it took effect is then unknown, and repeating it is safe.
    """

    client: Redis
    clock: Clock
    recover: Callable[[], AsyncIterable[tuple[str, Outcome]]]
    keys: Keys = field(default_factory=Keys)
    scope: str = "sluice"
    _heads: dict[str, tuple[int, str]] = field(default_factory=dict[str, tuple[int, str]])
    _turns: dict[str, anyio.Lock] = field(default_factory=dict[str, anyio.Lock])
    _seeding: anyio.Lock = field(default_factory=anyio.Lock)
    _append: Script = field(init=False)
    _untold: Script = field(init=False)
    _seed: Script = field(init=False)

    def __post_init__(self) -> None:
        """Register the scripts."""
        self._append = Script(self.client, APPEND)
        self._untold = Script(self.client, UNTOLD)
        self._seed = Script(self.client, SEED)

    async def append(self, tenant: str, outcome: Outcome, *, cause: str) -> Outcome:
        """Give an outcome its link; one that has it already comes back as it was, to the byte. Durable on return."""
        identity = f"{outcome.TYPE}:{outcome.identity()}:{content_of(outcome)}"
        # Those of one process would only race each other.
        turn = self._turns.setdefault(tenant, anyio.Lock())
        async with turn:
            # One trip for a link that is alone. With others behind it, a slow disk must not make each wait for the one before.
            is_alone = not turn.statistics().tasks_waiting
            found = await self._linked(tenant, outcome, identity=identity, cause=cause, durable=is_alone)
        if not is_alone:
            await wait_durable(self.client, keys=self.keys)
        return found

    async def untold(self, tenant: str, *, cause: str) -> Sequence[Outcome]:
        """What an earlier attempt of a record gave a link and may not have published, in order."""
        found = await self._untold([self.keys.chain_untold(self.scope, tenant)], [_entry(cause)[:-1] + b","])
        entries = {int(number): orjson.loads(entry) for number, entry in found}
        return [_outcome(entries[number]["outcome"]) for number in sorted(entries)]

    async def told(self, tenant: str, outcome: Outcome) -> None:
        """The broker has it."""
        if outcome.chain is not None:
            with outages():
                await _awaited(self.client.hdel(self.keys.chain_untold(self.scope, tenant), str(outcome.chain.number)))

    async def heads(self) -> dict[str, Head]:
        """The last link of every tenant."""
        found: dict[str, Head] = {}
        with outages():
            async for key in cast("Any", self.client).scan_iter(match=self.keys.every_chain_head(self.scope), count=1000):
                tenant = self.keys.tenant_of_chain(key.decode())
                # The head first: what is given meanwhile is behind it, and what is told meanwhile is on the topic.
                number, digest = await _awaited(self.client.hmget(key, ["number", "digest"]))
                untold = await _awaited(self.client.hkeys(self.keys.chain_untold(self.scope, tenant)))
                if number is not None:
                    found[tenant] = Head(int(number), digest.decode(), frozenset(map(int, untold)))
        return found

    async def prepare(self) -> None:
        """Learn the chains from the topic, unless this Redis knows them. Numbers go on where the topic ends."""
        async with self._seeding:
            with outages():
                if await _awaited(self.client.exists(self.keys.chain_seeded(self.scope))):
                    return
            await self._learn()
            with outages():
                await _awaited(self.client.set(self.keys.chain_seeded(self.scope), b"1"))
            await wait_durable(self.client, keys=self.keys)

    async def _linked(self, tenant: str, outcome: Outcome, *, identity: str, cause: str, durable: bool) -> Outcome:
        keys = [
            self.keys.chain_head(self.scope, tenant),
            self.keys.chain_link(self.scope, tenant, identity),
            self.keys.chain_untold(self.scope, tenant),
        ]
        may_begin = 0
        while True:
            number, previous = self._heads.get(tenant, (0, GENESIS))
            placed = linked(outcome, tenant=tenant, number=number + 1, previous=previous, at=self.clock.now())
            digest, text = placed.chain.digest if placed.chain else "", _text(placed)
            row = [number, previous, text, digest, _entry(cause, outcome=text), milliseconds(APPROVAL_TTL), may_begin]
            answer = await (self._append.durable(keys, row, behind=self.keys.durable()) if durable else self._append(keys, row))
            match answer:
                case [b"linked"]:
                    self._heads[tenant] = (number + 1, digest)
                    return placed
                case [b"known", known]:
                    return _outcome(known)
                case [b"moved", number, digest]:
                    self._heads[tenant] = (int(number), digest.decode())
                case _:
                    # Another chain than the one we know: begin where the topic ends, or at the beginning.
                    await self.prepare()
                    self._heads.pop(tenant, None)
                    may_begin = 1

    async def _learn(self) -> None:
        heads: dict[str, tuple[int, str]] = {}
        batch: list[tuple[str, Outcome]] = []
        async for tenant, outcome in self.recover():
            link = outcome.chain
            if link is None:
                continue
            heads[tenant] = max(heads.get(tenant, (0, "")), (link.number, link.digest))
            batch.append((tenant, outcome))
            if len(batch) >= SEED_BATCH:
                await self._remember(batch)
                batch.clear()
        await self._remember(batch)
        for tenant, (number, digest) in heads.items():
            await self._seed([self.keys.chain_head(self.scope, tenant)], [number, digest])

    async def _remember(self, batch: Sequence[tuple[str, Outcome]]) -> None:
        pipeline = self.client.pipeline(transaction=False)
        for tenant, outcome in batch:
            identity = f"{outcome.TYPE}:{outcome.identity()}:{content_of(outcome)}"
            key = self.keys.chain_link(self.scope, tenant, identity)
            pipeline.set(key, _text(outcome), nx=True, px=milliseconds(APPROVAL_TTL))
        with outages():
            await pipeline.execute()


def _entry(cause: str, **more: str) -> bytes:
    """What is noted of an untold outcome. Its cause comes first: `UNTOLD` looks for it there."""
    return orjson.dumps({"cause": cause, **more})


def _text(outcome: Outcome) -> str:
    return orjson.dumps([outcome.TYPE, outcome.model_dump_json()]).decode()


def _outcome(text: str | bytes) -> Outcome:
    event_type, payload = orjson.loads(text)
    return TYPES[event_type].model_validate_json(payload)


async def _awaited(answer: Any) -> Any:
    return await cast("Awaitable[Any]", answer)
