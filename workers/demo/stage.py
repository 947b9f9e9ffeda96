"""Everybody and everything on the demo's stage."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
import httpx

from infra.kafka.publisher import RawProducer, raw_producer
from infra.local.data.datasets import RetailTask
from infra.local.stack import BrokerKind
from infra.redis.client import connect
from infra.redis.keys import Keys
from infra.redis.search import RedisArticleIndex
from topics.catalogue import ANSWERS, OUTCOMES, REQUESTS, TRIAGE
from topics.errors import TimedOutError
from workers.client import Client, open_client
from workers.demo.approver import Approver
from workers.demo.crew import Crew, crew
from workers.demo.host import Host, hosted
from workers.demo.people import hire
from workers.demo.report import Report
from workers.demo.witness import Witness
from workers.operations import Operations

ACT_WITHIN_S: Final = 180.0

Say = Callable[[str], None]


@dataclass(slots=True)
class Stage:
    """Everybody and everything on the demo's stage."""

    host: Host
    client: Client
    witness: Witness
    approver: Approver
    crew: Crew
    control: httpx.AsyncClient
    index: RedisArticleIndex
    producer: RawProducer
    operations: Operations
    say: Say
    report: Report = field(default_factory=Report)
    questions: dict[str, str] = field(default_factory=dict[str, str])
    orders: dict[str, str] = field(default_factory=dict[str, str])
    tasks: dict[str, RetailTask] = field(default_factory=dict[str, RetailTask])

    @property
    def model_control(self) -> str:
        """Where the model server takes its script."""
        return self.host.stack.endpoints.model_base_url.removesuffix("/v1") + "/control"

    async def until(self, condition: Callable[[], bool], waiting_for: str) -> None:
        """Wait until the topics say so.

        Raises:
            TimedOutError: They did not, in time.
        """
        await self.witness.until(condition, within_s=ACT_WITHIN_S, waiting_for=waiting_for)

    async def look_until(self, condition: Callable[[], Awaitable[bool]], waiting_for: str, *, every_s: float) -> None:
        """Look, again and again, until something is so that no topic tells.

        Raises:
            TimedOutError: It was not, in time.
        """
        with anyio.move_on_after(ACT_WITHIN_S):
            while True:
                if await condition():
                    return
                await anyio.sleep(every_s)
        raise TimedOutError(f"{waiting_for} did not happen within {ACT_WITHIN_S:g} s")


@asynccontextmanager
async def set_up(data_dir: Path, broker: BrokerKind, say: Say, *, left_alone: frozenset[str]) -> AsyncGenerator[Stage]:
    """Start everything, for as long as the block runs."""
    say(f"Starting a broker ({broker}), Redis, a model server and a back office; data and logs in {data_dir}")
    async with AsyncExitStack() as stack:
        people = hire(data_dir / "people")
        host = await stack.enter_async_context(hosted(data_dir, broker=broker, policy_file=str(people.policy_file)))
        client = await stack.enter_async_context(open_client(host.settings, source="sluice-demo"))
        events = await stack.enter_async_context(client.watch([TRIAGE, ANSWERS, REQUESTS, OUTCOMES]))
        witness = Witness()
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)
        tasks.start_soon(witness.watch, events)
        members = await stack.enter_async_context(crew(data_dir))
        redis = connect(host.settings.redis_url, timeout_s=10.0, max_connections=8)
        stack.push_async_callback(redis.aclose)
        producer = await stack.enter_async_context(raw_producer(host.settings.kafka()))
        stage = Stage(
            host=host,
            client=client,
            witness=witness,
            approver=Approver(client, people, left_alone=left_alone),
            crew=members,
            control=await stack.enter_async_context(httpx.AsyncClient(timeout=20.0, trust_env=False)),
            index=RedisArticleIndex(redis, Keys(host.settings.redis_prefix)),
            producer=producer,
            operations=Operations(host.settings, operator="demo-operator"),
            say=say,
        )
        stage.report.broker = host.stack.endpoints.broker
        for name in ("worker-1", "worker-2"):
            await members.start(name)
        yield stage
