"""What a tenant may spend in a day: never more, whoever asks at once; and what nobody counted is paid for."""

from contextlib import suppress
from datetime import timedelta

import anyio
import pytest
from redis.asyncio import Redis

from infra.local.ports import free_port
from infra.models.metering import OURS, Budget, BudgetThenLimit, Call, Price, Unmetered, Usage
from infra.redis.budgets import RedisBudgets, Spent
from infra.redis.client import connect
from infra.redis.keys import Keys
from tests.fakes.clock import FakeClock
from topics.errors import BudgetExceededError, OutageError, RateLimitedError

PRICES = {"m": Price(input_usd_cents=100_000, output_usd_cents=400_000)}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def budgets(redis_client: Redis, redis_keys: Keys, clock: FakeClock) -> RedisBudgets:
    bounds = {"acme": Budget(tokens=1_000), "rich": Budget(usd_cents=10), "few": Budget(runs=2)}
    return RedisBudgets(redis_client, bounds, PRICES, clock, redis_keys)


def call(tenant: str = "acme", tokens: int = 100, model: str = "m", run: str = "") -> Call:
    return Call("p", model, tenant, tokens, run)


async def test_many_calls_at_once_are_let_no_further_than_the_budget(budgets: RedisBudgets) -> None:
    let: list[Call] = []

    async def ask() -> None:
        try:
            await budgets.admit(call())
        except BudgetExceededError:
            return
        let.append(call())

    async with anyio.create_task_group() as group:
        for _ in range(25):
            group.start_soon(ask)
    assert len(let) == 10
    assert await budgets.spent("acme") == Spent(1_000, pytest.approx(400))


async def test_what_a_call_used_takes_the_place_of_its_estimate_and_unknown_usage_keeps_it(budgets: RedisBudgets) -> None:
    await budgets.admit(call())
    await budgets.settle(call(), Usage(30, 10))
    await budgets.admit(call())
    await budgets.settle(call(), None)
    assert await budgets.spent("acme") == Spent(140, pytest.approx(3 + 4 + 40))


async def test_money_is_bounded_by_the_dearer_price_first_and_by_the_true_cost_then(budgets: RedisBudgets) -> None:
    await budgets.admit(call("rich", 25))  # at most 10 cents
    with pytest.raises(BudgetExceededError):
        await budgets.admit(call("rich", 1))
    await budgets.settle(call("rich", 25), Usage(25, 0))
    assert (await budgets.spent("rich")).usd_cents == pytest.approx(2.5)
    await budgets.admit(call("rich", 18))


async def test_a_model_without_a_price_is_denied_to_who_has_a_budget_of_money(budgets: RedisBudgets) -> None:
    with pytest.raises(BudgetExceededError, match="no price"):
        await budgets.admit(call("rich", 1, model="another"))
    await budgets.admit(call("acme", 1, model="another"))


async def test_a_new_day_begins_with_nothing_spent_and_nothing_to_spare(budgets: RedisBudgets, clock: FakeClock) -> None:
    await budgets.admit(call(tokens=1_000))
    clock.advance(timedelta(days=1).total_seconds())
    assert await budgets.spent("acme") == Spent(0, 0)
    await budgets.settle(call(tokens=1_000), Usage(1, 1))
    assert await budgets.spent("acme") == Spent(0, 0)


async def test_a_query_is_one_run_however_often_it_calls_is_tried_again_or_goes_on_another_day(
    budgets: RedisBudgets, clock: FakeClock
) -> None:
    async def admit(*runs: str) -> None:
        for run in runs:
            await budgets.admit(call("few", run=run))

    await admit("q1", "q1", "q1", "q2", "q1")
    with pytest.raises(BudgetExceededError, match="budget of runs"):
        await admit("q3")
    await admit("q2", "")  # a ticket is no run
    assert await budgets.spent("few") == Spent(700, pytest.approx(280), runs=2)
    clock.advance(timedelta(days=1).total_seconds())
    await admit("q1", "q3", "q4", "q2")
    with pytest.raises(BudgetExceededError):
        await admit("q5")


async def test_many_queries_at_once_begin_no_more_runs_than_the_budget_has(budgets: RedisBudgets) -> None:
    begun: list[str] = []

    async def begin(run: str) -> None:
        with suppress(BudgetExceededError):
            await budgets.admit(call("few", run=run))
            begun.append(run)

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(begin, f"q{number}")
    assert len(begun) == 2


async def test_a_run_that_the_limit_sends_away_comes_again_as_the_same_run(budgets: RedisBudgets) -> None:
    for _ in range(3):
        with pytest.raises(RateLimitedError):
            await BudgetThenLimit(budgets, Limited()).admit(call("few", run="q1"))
    assert await budgets.spent("few") == Spent(0, 0, runs=1)


async def test_what_is_denied_takes_nothing_off(redis_client: Redis, redis_keys: Keys, clock: FakeClock) -> None:
    budgets = RedisBudgets(redis_client, {"*": Budget(tokens=100, runs=1)}, {}, clock, redis_keys)
    with pytest.raises(BudgetExceededError, match="budget of tokens"):
        await budgets.admit(call(tokens=101, run="q1"))
    assert await budgets.spent("acme") == Spent(0, 0, runs=0)
    await budgets.admit(call(tokens=50, run="q2"))
    with pytest.raises(BudgetExceededError, match="budget of runs"):
        await budgets.admit(call(tokens=1, run="q1"))
    assert await budgets.spent("acme") == Spent(50, 0, runs=1)


async def test_a_call_of_ours_is_in_no_budget(redis_client: Redis, redis_keys: Keys, clock: FakeClock) -> None:
    budgets = RedisBudgets(redis_client, {"*": Budget(tokens=0, usd_cents=0, runs=0)}, {}, clock, redis_keys)
    await budgets.admit(call(OURS))
    await budgets.settle(call(OURS), Usage(30, 10))
    assert await budgets.spent(OURS) == Spent(0, 0)


async def test_who_has_no_budget_may_spend_anything(budgets: RedisBudgets) -> None:
    await budgets.admit(call("another", 10**9))


async def test_each_tenant_has_the_budget_for_all_others_for_itself(
    redis_client: Redis, redis_keys: Keys, clock: FakeClock
) -> None:
    budgets = RedisBudgets(redis_client, {"*": Budget(tokens=100)}, {}, clock, redis_keys)
    for tenant in ("a", "b"):
        await budgets.admit(call(tenant))
        with pytest.raises(BudgetExceededError):
            await budgets.admit(call(tenant, 1))


async def test_without_redis_nothing_may_be_spent(clock: FakeClock) -> None:
    client = connect(f"redis://127.0.0.1:{free_port()}/0", timeout_s=0.5)
    for budget in (Budget(tokens=100), Budget(runs=100)):
        with pytest.raises(OutageError):
            await RedisBudgets(client, {"*": budget}, {}, clock).admit(call(run="q1"))
    await client.aclose()


class Limited(Unmetered):
    async def admit(self, call: Call) -> None:
        raise RateLimitedError(call.provider)


async def test_a_call_that_the_limit_sends_away_costs_nothing(budgets: RedisBudgets) -> None:
    with pytest.raises(RateLimitedError):
        await BudgetThenLimit(budgets, Limited()).admit(call())
    assert await budgets.spent("acme") == Spent(0, 0)
