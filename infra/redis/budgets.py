"""What each tenant may use of the models in a day: tokens, money and runs, for all processes together.

Before a call its estimate is taken off, afterwards what it used: many calls at once cannot all pass on what only one may spend.
What nobody counted stays estimated. A run is taken off by a query's first call, and known by its thread and id from then on, so
that one that is tried again, or goes on another day, is no second run. A day is a UTC day.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol, cast

from redis.asyncio import Redis

from infra.models.metering import OURS, Budget, Call, Price, Usage
from infra.redis.client import Script, outages
from infra.redis.keys import APPROVAL_TTL, Keys, milliseconds
from topics.errors import BudgetExceededError

ANY: Final = "*"
KEPT_MS: Final = 40 * 86_400_000  # longer than a month, so that it can be accounted for
RUN_KEPT_MS: Final = milliseconds(APPROVAL_TTL)  # for so long a query can wait for people, and go on
MICROCENTS: Final = 1_000_000

# KEYS: what the tenant has spent; where runs are bounded, whether the call's query counts as one already.
# ARGV: tokens, microcents, most tokens, most microcents, most runs (-1: no bound), kept ms, a run's kept ms.
SPEND: Final = """
local spent = redis.call('HMGET', KEYS[1], 'tokens', 'microcents', 'runs')
local tokens, microcents, runs = tonumber(spent[1]) or 0, tonumber(spent[2]) or 0, tonumber(spent[3]) or 0
local begins = KEYS[2] and redis.call('EXISTS', KEYS[2]) == 0
if begins and runs + 1 > tonumber(ARGV[5]) then return 'runs' end
if tonumber(ARGV[3]) >= 0 and tokens + ARGV[1] > tonumber(ARGV[3]) then return 'tokens' end
if tonumber(ARGV[4]) >= 0 and microcents + ARGV[2] > tonumber(ARGV[4]) then return 'usd_cents' end
redis.call('HINCRBY', KEYS[1], 'tokens', ARGV[1])
redis.call('HINCRBY', KEYS[1], 'microcents', ARGV[2])
if begins then
  redis.call('HINCRBY', KEYS[1], 'runs', 1)
  redis.call('SET', KEYS[2], '', 'PX', ARGV[7])
end
redis.call('PEXPIRE', KEYS[1], ARGV[6])
return ''
"""
# KEYS: what the tenant has spent. ARGV: tokens and microcents more than were taken off, kept ms. A call that ends on another
# day than it began is corrected on that one, which must not begin with something to spare.
CORRECT: Final = """
for number, name in ipairs({'tokens', 'microcents'}) do
  if redis.call('HINCRBY', KEYS[1], name, ARGV[number]) < 0 then redis.call('HSET', KEYS[1], name, 0) end
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
"""


@dataclass(frozen=True, slots=True)
class Spent:
    """What a tenant has used on a day, calls that still run by their estimates. Runs are counted where they are bounded."""

    tokens: int
    usd_cents: float
    runs: int = 0


class Clock(Protocol):
    """Tells the day."""

    def now(self) -> datetime:
        """The current instant, aware, UTC."""
        ...


@dataclass(slots=True)
class RedisBudgets:
    """A `Meter` that keeps each tenant within its budget.

    Every call raises OutageError when Redis does not answer: without it nobody knows what is left, so nothing may be spent.

    Args:
        budgets: Tenant -> budget; `*` stands for all others, each with its own. Who has none of both may spend anything, and so
            may `OURS`.
        prices: Model -> price. A model without one is denied to who has a budget of money.
    """

    client: Redis
    budgets: Mapping[str, Budget]
    prices: Mapping[str, Price]
    clock: Clock
    keys: Keys = field(default_factory=Keys)
    _spend: Script = field(init=False)
    _correct: Script = field(init=False)

    def __post_init__(self) -> None:
        """Register the scripts; nothing is sent yet."""
        self._spend = Script(self.client, SPEND)
        self._correct = Script(self.client, CORRECT)

    async def admit(self, call: Call) -> None:
        """Take a call's estimate off the tenant's budget.

        Raises:
            BudgetExceededError: It is more than what is left of the day, or one run too many, or nobody knows the model's price.
                Nothing was taken off.
        """
        budget = self._budget(call.tenant)
        if budget is None:
            return
        cents = budget.usd_cents
        price = self.prices.get(call.model)
        if cents is not None and price is None:
            raise BudgetExceededError(f"the model {call.model} has no price, and the tenant a budget of money")
        bounds = (budget.tokens, None if cents is None else cents * MICROCENTS, budget.runs)
        most = [-1 if bound is None else bound for bound in bounds]
        cost = price.most_microcents(call.tokens) if price else 0
        run = [self.keys.run(call.tenant, call.run)] if call.run and budget.runs is not None else []
        numbers = [call.tokens, cost, *most, KEPT_MS, RUN_KEPT_MS]
        over = cast("bytes", await self._spend([self._key(call.tenant), *run], numbers))
        if over:
            raise BudgetExceededError(f"the tenant's budget of {over.decode()} is used up until the day ends (UTC)")

    async def settle(self, call: Call, usage: Usage | None) -> None:
        """Put what a call used in the place of its estimate; what nobody counted stays estimated."""
        if usage is not None:
            await self._put(call, usage.input_tokens + usage.output_tokens, lambda price: price.microcents(usage))

    async def give_back(self, call: Call) -> None:
        """Undo `admit` for a call that was not made. A run that has begun stays one: it comes again under its id."""
        await self._put(call, 0, lambda _: 0)

    async def _put(self, call: Call, tokens: int, cost: Callable[[Price], int]) -> None:
        if self._budget(call.tenant) is None:
            return
        price = self.prices.get(call.model)
        more = cost(price) - price.most_microcents(call.tokens) if price else 0
        await self._correct([self._key(call.tenant)], [tokens - call.tokens, more, KEPT_MS])

    async def spent(self, tenant: str) -> Spent:
        """What a tenant has used today."""
        with outages():
            found = await cast("Any", self.client).hmget(self._key(tenant), "tokens", "microcents", "runs")
        tokens, microcents, runs = (int(value or 0) for value in found)
        return Spent(tokens, microcents / MICROCENTS, runs)

    def _budget(self, tenant: str) -> Budget | None:
        return None if tenant == OURS else self.budgets.get(tenant) or self.budgets.get(ANY)

    def _key(self, tenant: str) -> str:
        return self.keys.spent(tenant, self._day())

    def _day(self) -> str:
        return self.clock.now().date().isoformat()
