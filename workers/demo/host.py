"""The embedded stack with its topics made and its endpoints written where every command finds them."""

import json
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from infra.kafka import provision
from infra.local.stack import Stack, local_stack
from infra.settings import ENDPOINTS_FILE, Settings, load_settings
from topics.catalogue import Catalogue


@dataclass(frozen=True, slots=True)
class Host:
    """A running stack, and the settings that lead to it."""

    stack: Stack
    settings: Settings
    data_dir: Path


@asynccontextmanager
async def hosted(
    data_dir: Path,
    *,
    broker: Literal["tansu", "apache-kafka"] = "tansu",
    kafka_bootstrap: str | None = None,
    redis_url: str | None = None,
    kafka_port: int | None = None,
    redis_port: int | None = None,
    **settings: Any,
) -> AsyncGenerator[Host]:
    """Run the stack for as long as the block runs.

    Args:
        settings: More settings for everybody who works on this data folder.

    Raises:
        ConfigError: One sentence: a missing wheel, a busy port, a folder that cannot be written, a setting that is wrong.
    """
    async with local_stack(
        data_dir=data_dir,
        broker=broker,
        kafka_bootstrap=kafka_bootstrap,
        redis_url=redis_url,
        kafka_port=kafka_port,
        redis_port=redis_port,
    ) as stack:
        try:
            yield await furnish(stack, data_dir, **settings)
        finally:
            (data_dir / ENDPOINTS_FILE).unlink(missing_ok=True)


async def furnish(stack: Stack, data_dir: Path, **settings: Any) -> Host:
    """Write a folder's endpoints and make its topics. A stack may serve several folders, told apart by their prefixes.

    Raises:
        ConfigError: A setting is wrong, or the topics cannot be made.
    """
    endpoints = stack.endpoints
    known = {
        "kafka_bootstrap": endpoints.kafka_bootstrap,
        "kafka_idempotent": endpoints.broker != "tansu",  # Tansu has no idempotent producer
        "redis_url": endpoints.redis_url,
        "model_base_url": endpoints.model_base_url,
        "back_office_url": endpoints.back_office_url,
        **_group_of(endpoints.broker),
        **settings,
    }
    (data_dir / ENDPOINTS_FILE).write_text(json.dumps(known, indent=2))
    loaded = load_settings(data_dir=data_dir)
    await provision.apply(loaded.kafka(), Catalogue(loaded.topic_prefix), replication_factor=loaded.replication_factor)
    return Host(stack, loaded, data_dir)


def _group_of(broker: str) -> dict[str, str]:
    """Tansu starts empty each time while Redis keeps its claims: the same offset is another record, and wants another group."""
    return {"group_prefix": f"sluice-{secrets.token_hex(3)}"} if broker == "tansu" else {}
