"""P1, P6: a lost position stops a worker, which names the command that mends it; the command does, and nothing is done twice."""

import json
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import anyio
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.admin import DeleteGroupsRequest

from infra.kafka.consumer import GroupConsumer
from tests.stories.cluster import delete_topic
from tests.stories.servers import KAFKA, Realm
from tests.stories.small_engine import SmallEngine, answer, quick
from topics.catalogue import QUERIES
from topics.envelope import Event
from topics.events import AnswerCompleted, Payload
from workers.demo.crew import crew
from workers.offsets import Offsets

pytestmark = [pytest.mark.story, pytest.mark.timeout(280), KAFKA]


async def sluice(realm: Realm, *arguments: str, within_s: float = 60, modules: str = ".") -> tuple[int, str, str]:
    """Run a command in a process of its own: its exit code, and what it said. `modules` is where Python looks first."""
    process = await anyio.open_process(
        [sys.executable, "-m", "workers", *arguments], env={"SLUICE_DATA_DIR": str(realm.data_dir), "PYTHONPATH": modules}
    )
    said = {"out": b"", "err": b""}

    async def collect(name: str, stream: Any) -> None:
        async for chunk in stream:
            said[name] += chunk

    try:
        with anyio.fail_after(within_s):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(collect, "out", process.stdout)
                tasks.start_soon(collect, "err", process.stderr)
                code = await process.wait()
    finally:
        with suppress(ProcessLookupError):
            process.kill()
    return code, said["out"].decode(), said["err"].decode()


async def states(realm: Realm, group: str, topic: str) -> set[str]:
    return {one.state for one in await Offsets(realm.settings, "stories").show(group) if one.topic == topic}


async def until_no_lag(realm: Realm, group: str) -> None:
    with anyio.fail_after(90):
        while sum(one.lag or 0 for one in await Offsets(realm.settings, "stories").show(group)):
            await anyio.sleep(0.2)


async def forget(realm: Realm, group: str) -> None:
    """What expiry does to a group that nobody has run for a week."""
    admin: Any = AIOKafkaAdminClient(bootstrap_servers=realm.settings.kafka_bootstrap)
    await admin.start()
    try:
        with anyio.fail_after(30):
            while True:
                answer = await admin._send_request(DeleteGroupsRequest([group]), await admin.find_coordinator(group))
                if answer.results == [(group, 0)]:
                    return
                await anyio.sleep(0.2)
    finally:
        await admin.close()


async def test_a_lost_position_stops_the_worker_until_somebody_says_where_to_go_on(servers, world_in):
    """War story 19. The rule says `latest`: taken for a new group, it would skip the question that came meanwhile."""
    realm = await servers.realm("lost", new_group_reads_from="latest")
    group, topic = f"{realm.settings.group_prefix}.query", f"{realm.settings.topic_prefix}queries"
    async with world_in(realm) as world, crew(realm.data_dir) as members:
        await members.start("first", ["query"])
        with anyio.fail_after(60):
            while await states(realm, group, topic) != {"ok"}:
                await anyio.sleep(0.2)
        for number in range(6):
            await world.ask(world.tenant(), "How do I return a product?", thread=f"before-{number}")
        await world.until_ended()

        refused, _, told = await sluice(realm, "offsets", "set", "--group", group, "--to", "earliest", "--because", "a try")
        assert (refused, "has members" in told) == (1, True)
        await members.stop("first")
        await forget(realm, group)
        await world.ask(world.tenant(), "Where is my order?", thread="meanwhile", query_id="meanwhile")

        code, _, said = await sluice(realm, "worker", "query")
        assert code == 1
        # Of the input or of its replay topic: both lost theirs, and the first to begin is named.
        assert f"sluice offsets set --group {group} --topic {topic}" in said
        assert await states(realm, group, topic) == {"lost"}
        assert not world.witness.streams["meanwhile"].ended

        refused, _, told = await sluice(realm, "offsets", "set", "--group", group, "--to", "earliest")
        assert (refused, "--because" in told) == (1, True)
        code, out, _ = await sluice(realm, "offsets", "set", "--group", group, "--to", "earliest", "--dry-run", "--json")
        assert (code, json.loads(out)["dry_run"], await states(realm, group, topic)) == (0, True, {"lost"})
        code, _, told = await sluice(
            realm, "offsets", "set", "--group", group, "--to", "earliest", "--because", "the group had expired"
        )
        assert code == 0, told
        _, out, _ = await sluice(realm, "offsets", "show", "--group", group, "--json")
        assert {one["state"] for one in json.loads(out)} == {"ok"}
        _, out, _ = await sluice(realm, "offsets", "changes", "--json")
        assert [(one["group"], one["because"]) for one in json.loads(out)] == [(group, "the group had expired")]

        await members.start("second", ["query"])
        await world.until_ended()
        await until_no_lag(realm, group)
        completed = Counter(one.payload.query_id for one in world.heard if isinstance(one.payload, AnswerCompleted))
        assert completed == dict.fromkeys(world.asked, 1), "what is known as done is not done again"


async def test_a_topic_that_was_made_anew_stops_the_worker(servers, world_in):
    """P12 of the procedures: its records are others, at positions that look as if they were read."""
    realm = await servers.realm("anew")
    group, topic = f"{realm.settings.group_prefix}.query", f"{realm.settings.topic_prefix}queries"
    async with world_in(realm) as world:
        async with crew(realm.data_dir) as members:
            await members.start("first", ["query"])
            await world.ask(world.tenant(), "How do I return a product?")
            await world.until_ended()
            await until_no_lag(realm, group)
        await delete_topic(realm.settings.kafka(), topic)
        with anyio.fail_after(60):
            while (await sluice(realm, "topics", "apply"))[0]:
                await anyio.sleep(0.5)
        code, _, said = await sluice(realm, "worker", "query")
        assert (code, "is gone" in said) == (1, True)


async def test_a_topic_that_ends_in_what_transactions_leave_is_read_to_its_end(servers):
    """Case 7: the committed record is done once, the aborted one never, and no lag is left on a partition of markers only."""
    realm = await servers.realm("transactions")
    group, topic, done = f"{realm.settings.group_prefix}.query", realm.catalogue.name(QUERIES), []
    headers = [("ce_type", b"query.asked"), ("ce_tenant", b"acme")]

    async def handler(event: Event[Any]) -> AsyncGenerator[Payload]:
        done.append(event.payload.thread_id)
        yield answer(event)

    async with AIOKafkaProducer(bootstrap_servers=realm.settings.kafka_bootstrap, transactional_id=topic) as producer:
        for partition, thread, is_kept in ((0, "evt-1", True), (0, "evt-2", False), (1, "evt-3", False)):
            await producer.begin_transaction()
            body = json.dumps({"thread_id": thread, "text": "?"}).encode()
            await producer.send_and_wait(topic, body, key=f"acme/{thread}".encode(), partition=partition, headers=headers)
            await (producer.commit_transaction() if is_kept else producer.abort_transaction())
    consumer = GroupConsumer(realm.settings.kafka(), group=group, topics=[topic])
    engine = SmallEngine(consumer, handler, quick(commit_interval_s=0.1), catalogue=realm.catalogue)
    async with engine.running():
        with anyio.fail_after(60):
            while any(one.lag != 0 for one in await Offsets(realm.settings, "stories").show(group) if one.topic == topic):
                await anyio.sleep(0.2)
    assert done == ["evt-1"]
    assert not engine.letters.records


async def test_a_worker_that_lacks_a_codec_names_it_and_reads_nothing(servers, tmp_path):
    """Case 6: found at the first such record, it would stop there, and again after every restart."""
    realm = await servers.realm("codecs")
    (tmp_path / "cramjam.py").write_text("raise ImportError('not installed here')")
    code, _, said = await sluice(realm, "worker", "query", modules=f"{tmp_path}:.")
    assert code == 2
    assert all(name in said for name in ("snappy", "lz4", "zstd")), said
    group = f"{realm.settings.group_prefix}.query"
    assert {one.state for one in await Offsets(realm.settings, "stories").show(group)} == {"new"}
