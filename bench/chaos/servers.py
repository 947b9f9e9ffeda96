"""What all runs of one command share: Apache Kafka, Redis, and a bad network in front of both."""

import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.chaos.proxy import Proxy, proxied
from infra.kafka.connection import KafkaConnection
from infra.local.apache_kafka import build_apache_kafka
from infra.local.ports import HOST, free_port
from infra.local.processes import Server, running
from infra.local.redis_server import RedisServer, build_redis

# The usual least is 6 s. A run with many kills shortens the session, and says so.
BROKER_SETTINGS: Final = {
    "group.min.session.timeout.ms": 1000,
    # Everybody may do everything, until a procedure denies it.
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@dataclass(frozen=True, slots=True)
class Servers:
    """They run. `kafka` is the direct way to the broker; workers take `kafka_proxy` and `redis_proxy`."""

    folder: Path
    broker: Server
    redis: RedisServer
    kafka: KafkaConnection
    kafka_proxy: Proxy
    redis_proxy: Proxy

    @property
    def redis_url(self) -> str:
        """The way to Redis through its proxy."""
        return f"redis://{HOST}:{self.redis_proxy.port}/0"

    @property
    def bootstrap(self) -> str:
        """The way to the broker through its proxy."""
        return f"{HOST}:{self.kafka_proxy.port}"

    async def mend(self) -> None:
        """Let the network be fair, stopped servers go on, and dead ones live again."""
        await self.kafka_proxy.change("fair")
        await self.redis_proxy.change("fair")
        for server in (self.broker, self.redis.server):
            if server.is_running:
                os.kill(server.pid, signal.SIGCONT)
            else:
                await server.start()


@asynccontextmanager
async def serving(folder: Path) -> AsyncGenerator[Servers]:
    """Run the servers for as long as the block runs.

    Raises:
        ConfigError: Java, Maven or a wheel is missing, or a server did not start.
    """
    kafka_proxy = Proxy(free_port())
    broker, address = build_apache_kafka(
        data_dir=folder, second_listener=(kafka_proxy.target_port, kafka_proxy.port), overrides=BROKER_SETTINGS
    )
    redis = build_redis(data_dir=folder)
    redis_proxy = Proxy(redis.port)
    async with proxied(kafka_proxy, redis_proxy), running(broker, redis.server):
        yield Servers(
            folder=folder,
            broker=broker,
            redis=redis,
            kafka=KafkaConnection(address),
            kafka_proxy=kafka_proxy,
            redis_proxy=redis_proxy,
        )
