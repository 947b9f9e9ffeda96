"""The models of a process: built once from the settings, closed with the stack."""

from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from infra.models.breaker import BreakerPolicy
from infra.models.door import Door
from infra.models.embeddings import ProviderEmbedder
from infra.models.gateway import GatewayChatModel, gateway_model
from infra.models.guarded import EMBEDDINGS, GuardedEmbedder
from infra.models.metering import Meter, Unmetered
from infra.models.routing import ProviderEndpoint
from infra.settings import Settings


@dataclass(frozen=True, slots=True)
class Models:
    """What talks to providers."""

    chat: GatewayChatModel
    embedder: GuardedEmbedder

    @property
    def doors(self) -> tuple[Door[Any], ...]:
        """Every endpoint, as it is now."""
        return (*self.chat.doors, self.embedder.door)


def build_models(settings: Settings, *, stack: AsyncExitStack, meter: Meter | None = None) -> Models:
    """Make the clients; the stack closes them.

    Args:
        meter: Limits and budgets; without one there are none.

    Raises:
        ConfigError: A tenant's choice that no provider can serve.
    """
    meter = meter or Unmetered()
    breaker = BreakerPolicy(open_s=settings.breaker_open_s, max_open_s=6 * settings.breaker_open_s)
    chat = gateway_model(
        settings.model_providers(),
        model=settings.model_name,
        tenants=settings.tenant_models,
        meter=meter,
        timeout_s=settings.model_timeout_s,
        concurrency=settings.model_concurrency,
        breaker=breaker,
    )
    stack.push_async_callback(chat.aclose)
    address = settings.embedding_base_url or settings.model_base_url
    embedder = ProviderEmbedder(
        base_url=address,
        api_key=(settings.embedding_api_key or settings.model_api_key).get_secret_value(),
        model=settings.embedding_model,
        timeout_s=settings.embedding_timeout_s,
        dimensions=settings.embedding_dimensions,
    )
    stack.push_async_callback(embedder.aclose)
    provider = provider_behind(address, settings.model_providers())
    return Models(chat, GuardedEmbedder(embedder, provider=provider, meter=meter, breaker=breaker))


def provider_behind(address: str, providers: Iterable[ProviderEndpoint]) -> str:
    """Whose limit embeddings count against: that of the chat provider at the same address, else one of their own."""
    return next((one.name for one in providers if one.base_url.rstrip("/") == address.rstrip("/")), EMBEDDINGS)
