"""The models of a process: built once from the settings, closed with the stack."""

from contextlib import AsyncExitStack
from dataclasses import dataclass

from langchain_core.language_models import BaseChatModel

from infra.models.embeddings import ProviderEmbedder
from infra.models.providers import chat_model
from infra.settings import Settings


@dataclass(frozen=True, slots=True)
class Models:
    """What talks to providers."""

    chat: BaseChatModel
    embedder: ProviderEmbedder


def build_models(settings: Settings, *, stack: AsyncExitStack) -> Models:
    """Make the clients; the stack closes them."""
    api_key = settings.model_api_key.get_secret_value()
    chat = chat_model(
        base_url=settings.model_base_url, api_key=api_key, model=settings.model_name, timeout_s=settings.model_timeout_s
    )
    stack.push_async_callback(chat.aclose)
    embedder = ProviderEmbedder(
        base_url=settings.model_base_url,
        api_key=api_key,
        model=settings.embedding_model,
        timeout_s=settings.model_timeout_s,
        dimensions=settings.embedding_dimensions,
    )
    stack.push_async_callback(embedder.aclose)
    return Models(chat, embedder)
