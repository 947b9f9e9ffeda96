"""P1, P7: what is down slows the work. It spends no attempt, kills no record and no process, and what waited is then done."""

from contextlib import aclosing
from pathlib import Path

import anyio
import pytest

from bench.rig import publish_all
from infra.clock import SystemClock
from infra.redis.client import connect
from tests.stories.lone_worker import Lone, lone_worker
from topics.catalogue import TRIAGE
from topics.envelope import encode
from topics.events import TicketOpened
from topics.records import OutboundRecord

pytestmark = [pytest.mark.story, pytest.mark.timeout(300)]

GOOD = 1000
DOWN_S = 15.0


def tickets(lone: Lone, count: int, *, begin: int = 0) -> list[OutboundRecord]:
    now = SystemClock().now()
    return [
        encode(
            TicketOpened(ticket_id=f"t{number}", body="My card was stolen"),
            catalogue=lone.catalogue,
            tenant="shop",
            source="story",
            now=now,
            ordinal="0",
            event_id=f"ticket-{number}",
        )
        for number in range(begin, begin + count)
    ]


async def until_all_committed(lone: Lone, *, done: int) -> None:
    await lone.until_figures(lambda seen: seen["sluice_records_done_total"] >= done and seen["sluice_lag_records"] == 0)


async def test_redis_is_down_while_a_thousand_good_records_arrive_and_all_of_them_are_done_afterwards(tmp_path: Path):
    """Case 32 (iii), with a shorter minute."""
    async with lone_worker(tmp_path, "ingestion", max_failures=2) as lone:
        await publish_all(lone.host.settings.kafka(), tickets(lone, 1, begin=GOOD))
        await until_all_committed(lone, done=1)
        await lone.until_ready()
        await lone.stop_redis()
        await publish_all(lone.host.settings.kafka(), tickets(lone, GOOD))
        why = await lone.until_unready_for(lambda why: any(one.startswith("redis:") for one in why))
        assert "Redis cannot serve" in why[0]
        end_s = anyio.current_time() + DOWN_S
        while anyio.current_time() < end_s:
            assert (await lone.live())[0] == 200, "a restart would not bring Redis back"
            assert (await lone.figures())["sluice_records_done_total"] == 1
            await anyio.sleep(0.5)
        seen = await lone.figures()
        assert (seen["sluice_outage"], seen["sluice_outages_total"]) == (1, 1), "one outage, told once"
        await lone.start_redis()
        await until_all_committed(lone, done=GOOD + 1)
        await lone.until_ready()
        assert await lone.dead_letters() == 0
        assert await lone.count(TRIAGE) == GOOD + 1
        assert (await lone.figures())["sluice_retries_total"] == 0, "no attempt was spent"


async def test_a_full_redis_pauses_the_intake_until_there_is_room(tmp_path: Path):
    """Case 21 (i): nothing is committed, nothing is dead-lettered, and the pressure shows."""
    async with lone_worker(tmp_path, "ingestion", broker="apache-kafka", max_failures=2) as lone:
        await publish_all(lone.host.settings.kafka(), tickets(lone, 1))
        await until_all_committed(lone, done=1)
        async with aclosing(connect(lone.host.settings.redis_url, timeout_s=5.0)) as client:
            await client.config_set("maxmemory", "1")
            await publish_all(lone.host.settings.kafka(), tickets(lone, 50, begin=1))
            await lone.until_unready_for(lambda why: any(one.startswith("redis:") and "OutOfMemory" in one for one in why))
            seen = await lone.until_figures(lambda seen: seen["sluice_outage"] == 1 and seen["sluice_lag_records"] == 50)
            assert (seen["sluice_dependency_up"], seen["sluice_records_done_total"]) == (1, 1), "Kafka serves, Redis does not"
            assert (await lone.live())[0] == 200
            await client.config_set("maxmemory", "0")
        await until_all_committed(lone, done=51)
        await lone.until_ready()
        assert await lone.dead_letters() == 0


async def test_the_broker_goes_away_and_comes_back_and_no_worker_is_restarted(tmp_path: Path):
    async with lone_worker(tmp_path, "ingestion") as lone:
        await publish_all(lone.host.settings.kafka(), tickets(lone, 1))
        await until_all_committed(lone, done=1)
        await lone.until_ready()
        await lone.host.stack.stop_broker()
        await lone.until_unready_for(lambda why: any(one.startswith("kafka:") for one in why))
        assert (await lone.live())[0] == 200
        await lone.host.stack.start_broker()
        await publish_all(lone.host.settings.kafka(), tickets(lone, 20, begin=1))
        await until_all_committed(lone, done=21)
        await lone.until_ready()
        assert (await lone.live())[0] == 200
        assert await lone.dead_letters() == 0
        assert lone.worker.returncode is None
