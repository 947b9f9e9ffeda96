"""Limits and budgets of model calls, as the settings say."""

from typing import Any

import structlog
from redis.asyncio import Redis

from infra.clock import SystemClock
from infra.models.metering import BudgetThenLimit, Meter, Unmetered
from infra.redis.budgets import RedisBudgets
from infra.redis.keys import Keys
from infra.redis.rate_limit import RedisRateLimit
from infra.settings import Settings

_log: Any = structlog.get_logger("sluice.models")


def build_budgets(settings: Settings, *, redis: Redis, keys: Keys) -> RedisBudgets:
    """What each tenant may use in a day. Says which models are denied to tenants with a budget of money, for want of a price."""
    if unpriced := unpriced_models(settings):
        _log.warning("models_without_price", models=unpriced, why="tenants with a budget of money cannot use them")
    return RedisBudgets(redis, settings.tenant_budgets, settings.model_prices, SystemClock(), keys)


def unpriced_models(settings: Settings) -> list[str]:
    """Models without a price, by the providers' names, that of embeddings among them; none where no budget is of money."""
    if all(budget.usd_cents is None for budget in settings.tenant_budgets.values()):
        return []
    chat = (name for provider in settings.model_providers() for name in provider.models.values())
    return sorted({*chat, settings.embedding_model} - settings.model_prices.keys())


def build_meter(settings: Settings, *, redis: Redis, keys: Keys, budgets: RedisBudgets) -> Meter:
    """What every model call asks first. Without limits and budgets it asks nobody."""
    limit: Meter = Unmetered()
    if settings.provider_limits:
        paces = {name: one.pace() for name, one in settings.provider_limits.items()}
        limit = RedisRateLimit(redis, paces, settings.limit_processes, SystemClock(), keys)
    return BudgetThenLimit(budgets, limit) if settings.tenant_budgets else limit
