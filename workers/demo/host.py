"""The embedded stack with its topics made and its endpoints written where every command finds them."""

import json
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
        endpoints = stack.endpoints
        known = {
            "kafka_bootstrap": endpoints.kafka_bootstrap,
            "kafka_idempotent": endpoints.broker != "tansu",  # Tansu has no idempotent producer
            "redis_url": endpoints.redis_url,
            "model_base_url": endpoints.model_base_url,
            "back_office_url": endpoints.back_office_url,
            **settings,
        }
        file = data_dir / ENDPOINTS_FILE
        file.write_text(json.dumps(known, indent=2))
        try:
            loaded = load_settings(data_dir=data_dir)
            catalogue = Catalogue(loaded.topic_prefix)
            await provision.apply(loaded.kafka(), catalogue, replication_factor=loaded.replication_factor)
            yield Host(stack, loaded, data_dir)
        finally:
            file.unlink(missing_ok=True)
