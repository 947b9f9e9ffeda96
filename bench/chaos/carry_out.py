"""Does what a schedule says to a world, and feeds it inputs meanwhile."""

import math
from collections.abc import Sequence
from typing import Final

import anyio

from bench.chaos.inputs import Task
from bench.chaos.proxy import Weather
from bench.chaos.schedule import Disturbance, Kind
from bench.chaos.world import World

PORTION_WITHIN_S: Final = 2.0
WEATHERS: Final[dict[Kind, Weather]] = {
    "kafka_cut": "cut",
    "kafka_black_hole": "black_hole",
    "kafka_latency": "latency",
    "kafka_trickle": "trickle",
    "redis_cut": "cut",
    "redis_black_hole": "black_hole",
    "redis_latency": "latency",
    "redis_trickle": "trickle",
}


async def carry_out(world: World, schedule: Sequence[Disturbance], tasks: Sequence[Task]) -> None:
    """Do one disturbance after another, each with its portion of the tasks, and return when the last has ended.

    The times of a schedule are the earliest: who is killed, frozen or stopped is at work first, since an idle worker shows nothing.
    """
    began_s = anyio.current_time()
    size = math.ceil(len(tasks) / len(schedule))
    for number, one in enumerate(schedule):
        portion = tasks[number * size : (number + 1) * size]
        world.feed(portion, rate_per_s=size / PORTION_WITHIN_S)
        await anyio.sleep_until(began_s + one.at_s)
        await disturb(world, one)


async def disturb(world: World, one: Disturbance) -> None:
    """Do one thing, and undo it when its time is over."""
    servers = world.servers
    match one.kind:
        case "kill":
            await world.kill_at_work(one.target)
            await world.start_worker(one.target)
        case "freeze":
            await world.freeze_at_work(one.target)
            await anyio.sleep(one.for_s)
            world.thaw(one.target)
        case "stop":
            await world.stop_at_work(one.target)
            await world.start_worker(one.target)
        case "kafka_cut" | "kafka_black_hole" | "kafka_latency" | "kafka_trickle":
            await world.weather(servers.kafka_proxy, one.kind, WEATHERS[one.kind], one.for_s)
        case "redis_cut" | "redis_black_hole" | "redis_latency" | "redis_trickle":
            await world.weather(servers.redis_proxy, one.kind, WEATHERS[one.kind], one.for_s)
        case "kafka_reset":
            async with world.disturbing(one.kind, "kafka"):
                await servers.kafka_proxy.reset()
        case "broker_kill":
            async with world.disturbing(one.kind, "broker"):
                await world.restart_server(servers.broker)
        case "redis_kill":
            async with world.disturbing(one.kind, "redis"):
                await world.restart_server(servers.redis.server)
        case "broker_freeze" | "redis_freeze":
            await world.freeze_server(servers.broker if one.kind == "broker_freeze" else servers.redis.server, one.kind, one.for_s)
