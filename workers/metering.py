"""Limits and budgets of model calls, as the settings say."""

from redis.asyncio import Redis

from infra.clock import SystemClock
from infra.models.metering import BudgetThenLimit, Meter, Unmetered
from infra.redis.budgets import RedisBudgets
from infra.redis.keys import Keys
from infra.redis.rate_limit import RedisRateLimit
from infra.settings import Settings


def build_budgets(settings: Settings, *, redis: Redis, keys: Keys) -> RedisBudgets:
    """What each tenant may use in a day."""
    return RedisBudgets(redis, settings.tenant_budgets, settings.model_prices, SystemClock(), keys)


def build_meter(settings: Settings, *, redis: Redis, keys: Keys, budgets: RedisBudgets) -> Meter:
    """What every model call asks first. Without limits and budgets it asks nobody."""
    limit: Meter = Unmetered()
    if settings.provider_limits:
        paces = {name: one.pace() for name, one in settings.provider_limits.items()}
        limit = RedisRateLimit(redis, paces, settings.limit_processes, SystemClock(), keys)
    return BudgetThenLimit(budgets, limit) if settings.tenant_budgets else limit
