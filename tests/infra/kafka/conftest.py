"""Brokers for the tests of this folder, started when first asked for."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from infra.kafka.connection import KafkaConnection
from infra.local.apache_kafka import apache_kafka_missing
from infra.local.stack import Stack, local_stack


class Broker:
    """A broker in a thread of its own, so that tests with loops of their own may share it."""

    def __init__(self, stack: Stack, portal: BlockingPortal, *, kind: str) -> None:
        self.stack = stack
        self.portal = portal
        self.connection = KafkaConnection(stack.endpoints.kafka_bootstrap, idempotent=kind != "tansu")


@pytest.fixture(scope="session", params=["tansu", "apache-kafka"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    kind: Literal["tansu", "apache-kafka"] = request.param
    if kind == "apache-kafka" and (missing := apache_kafka_missing()):
        pytest.skip(missing)
    folder: Path = tmp_path_factory.mktemp(kind)
    running = local_stack(data_dir=folder, broker=kind, redis_url="redis://unused", model_server=False, back_office=False)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(running) as stack:
        yield Broker(stack, portal, kind=kind)


@pytest.fixture
def connection(broker: Broker) -> KafkaConnection:
    return broker.connection


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    """Topics of the test's own."""
    return f"p{abs(hash(request.node.nodeid)) % 10**8}."
