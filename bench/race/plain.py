"""The same race on plain LangGraph: it shows what the promise is worth, and that the harness sees doubles."""

import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Final

import anyio
import orjson

from bench.race.account import doubles
from bench.race.ground import TOOL, Ground, task
from bench.race.plain_worker import config, plain_graph
from bench.race.plan import Shot, shots
from infra.kafka.publisher import RawProducer, raw_producer
from infra.local.processes import Server, ServerSpec, running
from infra.redis.checkpointer import HardenedRedisSaver
from infra.redis.client import connect
from infra.redis.keys import Keys
from topics.catalogue import DECISIONS, Catalogue
from topics.records import OutboundRecord

WORKERS: Final = 3
QUIET_S: Final = 3.0
PACE_S: Final = 0.25  # between two threads: what waits in a queue behind others is no race
WITHIN_S: Final = 120.0

Say = Callable[[str], None]


async def race(ground: Ground, *, seed: int, say: Say) -> int:
    """Run it. Returns the effects beyond the first of each thread."""
    settings = ground.host.settings
    topic = Catalogue(settings.topic_prefix).name(DECISIONS)
    async with AsyncExitStack() as stack:
        producers = [await stack.enter_async_context(raw_producer(settings.kafka())) for _ in shots(0, seed)]
        interrupts = await _pause(ground)
        say(f"    {len(interrupts)} threads of plain LangGraph wait")
        await stack.enter_async_context(running(*(_worker(ground, topic, number) for number in range(WORKERS))))
        async with anyio.create_task_group() as tasks:
            for producer, own in zip(producers, shots(ground.threads, seed), strict=True):
                tasks.start_soon(_fire, producer, topic, own, interrupts)
        return doubles(await _settled(ground))


async def _pause(ground: Ground) -> dict[int, str]:
    """Bring every thread to its interrupt. Returns the interrupts' ids."""
    redis = connect(ground.host.settings.redis_url, timeout_s=10.0)
    try:
        saver = HardenedRedisSaver(redis, keys=Keys(ground.host.settings.redis_prefix))
        graph = plain_graph(saver, ground.http, ground.back_office)
        call = next(action for action in task().actions if action.name == TOOL)
        found: dict[int, str] = {}
        for thread in range(ground.threads):
            given = {"tenant": ground.tenant(thread), "arguments": call.arguments}
            state: dict[str, Any] = await graph.ainvoke(given, config(thread))
            found[thread] = state["__interrupt__"][0].id
        return found
    finally:
        await redis.aclose()


def _worker(ground: Ground, topic: str, number: int) -> Server:
    settings = ground.host.settings
    arguments = (settings.kafka_bootstrap, settings.redis_url, settings.redis_prefix, ground.back_office, topic, "plain")
    return Server(
        ServerSpec(
            name=f"plain-{number}",
            command=(sys.executable, "-m", "bench.race.plain_worker", *arguments),
            log_path=ground.host.data_dir / "logs" / f"plain-{number}.log",
            stop_grace_s=5.0,
        )
    )


async def _fire(producer: RawProducer, topic: str, own: list[Shot], interrupts: dict[int, str]) -> None:
    for shot in own:
        value = orjson.dumps({"thread": shot.thread, "interrupt": interrupts[shot.thread], "decision": shot.choice})
        await producer.write(OutboundRecord(topic, (shot.key or f"thread-{shot.thread}").encode(), value))
        await anyio.sleep(PACE_S)


async def _settled(ground: Ground) -> dict[int, int]:
    """The effects, once some are there and no more came for a while."""
    before: dict[int, int] = {}
    with anyio.move_on_after(WITHIN_S):
        while True:
            await anyio.sleep(QUIET_S)
            now = await ground.effects()
            if now == before and any(now.values()):
                return now
            before = now
    return before
