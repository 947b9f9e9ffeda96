"""The door to aiokafka's consumer: what it promises, and the private parts of the client that it rests on."""

from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from aiokafka import TopicPartition, codec
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import (
    CommitFailedError,
    ConsumerStoppedError,
    CorruptRecordException,
    GroupAuthorizationFailedError,
    IllegalGenerationError,
    IllegalStateError,
    InconsistentGroupProtocolError,
    KafkaError,
    NodeNotReadyError,
    NoOffsetForPartitionError,
    NotCoordinatorForGroupError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnsupportedCodecError,
)
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetFetchRequest, OffsetFetchResponse_v1, OffsetFetchResponse_v3
from aiokafka.structs import ConsumerRecord, OffsetAndMetadata
from anyio.abc import SocketAttribute, SocketStream

from infra.kafka.connection import KafkaConnection
from infra.kafka.consumer import Consumer, GroupConsumer, raw_record
from infra.kafka.guards import check_codecs, with_checked_positions, with_members_commits
from infra.local.ports import free_port
from tests.fakes.consumer import MemoryConsumer
from tests.fakes.positions import MemoryPositions
from topics.errors import ConfigError, HaltError, OutageError
from topics.records import RawRecord

CODECS = ("gzip", "snappy", "lz4", "zstd")
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


# Committed positions, as the coordinator tells them


def scripted(response: Any) -> Callable[..., Any]:
    async def send(node_id: int, request: Any, *, group: Any = None) -> Any:  # noqa: ARG001 the client's shape
        return response

    return send


def coordinator(send: Callable[..., Any]) -> Any:
    """The client's own, as far as it asks for committed positions."""
    client = type("Client", (), {"send": staticmethod(send)})()
    found: Any = GroupCoordinator.__new__(GroupCoordinator)
    found.group_id, found.coordinator_id, found._client = "g", 1, client
    found.coordinator_dead = lambda: setattr(found, "coordinator_id", None)
    return found


def answer(*partitions: tuple[int, int], error: int = 0) -> Any:
    topics = [("t", [(number, offset, "", 0) for number, offset in partitions])] if partitions else []
    return OffsetFetchResponse_v3(0, topics, error)


@pytest.mark.parametrize("error", [14, 15, 16, -1])
async def test_a_failed_answer_about_positions_is_no_new_group(error: int):
    """P1, P6: read as "nothing was committed", it would begin the group anew, or skip what was not read."""
    positions = coordinator(with_checked_positions(scripted(answer(error=error))))
    with pytest.raises(NotCoordinatorForGroupError) as caught:
        await positions._do_fetch_commit_offsets([P0])
    assert caught.value.retriable, "the client must ask again"


@pytest.mark.parametrize("error", [14, 16])
async def test_the_client_still_has_the_fault_that_the_guard_is_for(error: int):
    """The day this fails, the guard can go."""
    assert await coordinator(scripted(answer(error=error)))._do_fetch_commit_offsets([P0]) == {}


async def test_an_answer_that_is_silent_about_a_partition_is_no_answer():
    with pytest.raises(NotCoordinatorForGroupError):
        await coordinator(with_checked_positions(scripted(answer((0, 5)))))._do_fetch_commit_offsets([P0, P1])


async def test_whole_answers_pass_old_ones_too():
    told = answer((0, 5), (1, -1))
    assert await coordinator(with_checked_positions(scripted(told)))._do_fetch_commit_offsets([P0, P1]) == {
        P0: OffsetAndMetadata(5, "")
    }
    old = OffsetFetchResponse_v1([("t", [(0, 7, "", 0)])])
    assert await coordinator(with_checked_positions(scripted(old)))._do_fetch_commit_offsets([P0]) == {P0: OffsetAndMetadata(7, "")}


async def test_a_group_that_is_denied_is_told_so():
    with pytest.raises(GroupAuthorizationFailedError):
        await coordinator(with_checked_positions(scripted(answer(error=30))))._do_fetch_commit_offsets([P0])


async def test_other_requests_are_none_of_its_business():
    other = object()
    assert await with_checked_positions(scripted(other))(1, object(), group=None) is other


async def test_the_private_parts_are_where_they_were():
    request: Any = OffsetFetchRequest("g", [("t", [0, 1])])
    assert (request._consumer_group, request._partitions) == ("g", [("t", [0, 1])])
    consumer = GroupConsumer(KafkaConnection("localhost:1"), group="g", topics=["t"])
    assert consumer._client._client.send.__name__ == "checked"
    assert consumer._client._group_instance_id is None, "static membership, whose errors this client does not know"
    await consumer.stop()


# Polls, positions and commits


class Running:
    """A task of the client's."""

    def __init__(self) -> None:
        self.is_dead = False

    def done(self) -> bool:
        return self.is_dead


class Client:
    """As much of aiokafka's consumer as the door uses. `polls` are batches or errors, in order."""

    def __init__(self) -> None:
        self.fetching, self.coordinating = Running(), Running()
        self._fetcher = SimpleNamespace(_fetch_task=self.fetching)
        self._coordinator = SimpleNamespace(_coordination_task=self.coordinating)
        self.known: dict[TopicPartition, int] = {}
        self.commit_blocks = anyio.Event()
        self.commit_blocks.set()
        self.assigned = {P0, P1}
        self.polls: list[Any] = []
        self.asked_for: list[tuple[TopicPartition, ...]] = []
        self.commits: list[dict[TopicPartition, int]] = []
        self.commit_error: Exception | None = None
        self.sought: dict[TopicPartition, int] = {}
        self.hangs = False

    def assignment(self) -> set[TopicPartition]:
        return self.assigned

    async def getmany(self, *partitions: TopicPartition, timeout_ms: int, max_records: int) -> Any:
        assert (timeout_ms > 0, max_records > 0) == (True, True)
        self.asked_for.append(partitions)
        found = self.polls.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    async def beginning_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 3)

    async def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 9)

    def partitions_for_topic(self, topic: str) -> set[int]:
        return {one.partition for one in (P0, P1) if one.topic == topic}

    async def committed(self, partition: TopicPartition) -> int | None:
        return self.known.get(partition)

    async def commit(self, offsets: dict[TopicPartition, int]) -> None:
        await self.commit_blocks.wait()
        if self.commit_error:
            raise self.commit_error
        self.commits.append(offsets)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        if partition not in self.assigned:
            raise IllegalStateError("not ours")
        self.sought[partition] = offset

    async def stop(self) -> None:
        if self.hangs:
            await anyio.sleep_forever()


@pytest.fixture
async def client() -> Client:
    return Client()


@pytest.fixture
async def make(client: Client) -> AsyncIterator[Callable[..., GroupConsumer]]:
    real: list[Any] = []

    def consumer(**more: Any) -> GroupConsumer:
        made = GroupConsumer(KafkaConnection("localhost:1"), group="g", topics=["t"], **more)
        real.append(made._client)
        made._client = client
        return made

    yield consumer
    for one in real:
        await one.stop()


def record(offset: int = 4, *, timestamp: int = 500, **more: Any) -> Any:
    fields = {"key": b"k", "value": b"v", "headers": (("a", None), ("a", b"1"))} | more
    return ConsumerRecord(
        topic="t", partition=0, offset=offset, timestamp=timestamp, timestamp_type=0, checksum=None, serialized_key_size=1,
        serialized_value_size=1, **fields,
    )  # fmt: skip


@pytest.mark.parametrize(("timestamp", "known"), [(500, 500), (-1, None), (0, None)])
def test_a_record_keeps_its_bytes_and_an_unknown_timestamp_is_none(timestamp: int, known: int | None):
    """Case 8: -1 and 0 are not 1970."""
    assert raw_record(record(timestamp=timestamp)) == RawRecord("t", 0, 4, b"k", b"v", (("a", None), ("a", b"1")), known)
    assert raw_record(record(key=None, value=None, headers=())) == RawRecord("t", 0, 4, None, None, (), 500)


async def test_full_partitions_are_not_asked_for(client: Client, make: Callable[..., GroupConsumer]):
    client.polls = [{P1: [record()]}]
    assert await make().poll({("t", 0)}) == {("t", 1): [raw_record(record())]}
    assert client.asked_for == [(P1,)]
    assert await make().poll({("t", 0), ("t", 1)}) == {}
    assert client.asked_for == [(P1,)], "no partition named means every one"


@pytest.mark.parametrize(("rule", "position"), [("earliest", 3), ("latest", 9)])
async def test_where_a_new_group_begins_is_committed_at_once(
    rule: str, position: int, client: Client, make: Callable[..., GroupConsumer]
):
    """Otherwise a group that reads from the end skips what comes while it restarts."""
    client.polls, client.known = [NoOffsetForPartitionError(P0)], {P1: 5}
    assert await make(new_group_reads_from=rule).poll(set()) == {}
    assert client.commits == [{P0: position}]
    assert client.sought == {P0: position}


async def test_a_beginning_that_is_not_committed_is_not_begun(client: Client, make: Callable[..., GroupConsumer]):
    client.polls = [NoOffsetForPartitionError(P0), NoOffsetForPartitionError(P0)]
    client.commit_error = NodeNotReadyError()
    with pytest.raises(OutageError):
        await make().poll(set())
    client.assigned, client.known = {P1}, {P1: 5}
    assert await make().poll(set()) == {}
    assert client.sought == {}


@pytest.mark.parametrize(
    ("error", "meaning", "says"),
    [
        (OffsetOutOfRangeError({P0: 17}), HaltError, "t/0 is 17, but the log ends at 9"),
        (TopicAuthorizationFailedError("t"), ConfigError, "denies"),
        (InconsistentGroupProtocolError(), ConfigError, "stop all workers of this group first"),
        (GroupAuthorizationFailedError("g"), ConfigError, "denies"),
        (UnsupportedCodecError("lz4"), ConfigError, "lz4"),
        (UnknownTopicOrPartitionError(), OutageError, "topics apply"),
        (CorruptRecordException(), OutageError, "CorruptRecordException"),
        (NodeNotReadyError(), OutageError, "NodeNotReadyError"),
    ],
)
async def test_client_errors_have_a_meaning(
    error: KafkaError, meaning: type[Exception], says: str, client: Client, make: Callable[..., GroupConsumer]
):
    client.polls = [error]
    with pytest.raises(meaning, match=says):
        await make().poll(set())


# What a group remembers


async def test_a_position_that_is_gone_stops_the_worker_and_reads_nothing(client: Client, make: Callable[..., GroupConsumer]):
    """P1: by the rule for new groups it would skip what was not read, or read all of it again."""
    memory = MemoryPositions()
    await memory.remember([("t", 0)])
    client.polls = [NoOffsetForPartitionError(P0)]
    with pytest.raises(HaltError, match="sluice offsets set --group g --topic t --partition 0") as caught:
        await make(memory=memory, new_group_reads_from="latest").poll(set())
    assert caught.value.reason_code == "offset_lost"
    assert (client.commits, client.sought) == ([], {})


async def test_a_partition_that_came_later_is_begun_at_its_first_record(client: Client, make: Callable[..., GroupConsumer]):
    """Case 13: the rule for new groups is not for partitions that are new to a group."""
    memory = MemoryPositions()
    await memory.begin("t", partitions=1)
    client.polls = [NoOffsetForPartitionError(P1)]
    await make(memory=memory, new_group_reads_from="latest").poll(set())
    assert client.commits == [{P0: 9, P1: 3}]


async def test_every_partition_of_a_new_group_begins_by_the_rule(client: Client, make: Callable[..., GroupConsumer]):
    client.polls = [NoOffsetForPartitionError(P1)]
    await make(memory=MemoryPositions(), new_group_reads_from="latest").poll(set())
    assert client.commits == [{P0: 9, P1: 9}]


async def test_a_memory_that_does_not_answer_begins_nothing_and_holds_up_no_commit(
    client: Client, make: Callable[..., GroupConsumer]
):
    memory = MemoryPositions()
    memory.down = 1
    client.polls = [NoOffsetForPartitionError(P0), {}, {}]
    consumer = make(memory=memory)
    with pytest.raises(OutageError):
        await consumer.poll(set())
    assert client.commits == []
    memory.down = 1
    assert await consumer.commit({("t", 0): 5, ("t", 1): 5})
    await consumer.poll(set())
    assert memory.committed == set()
    await consumer.poll(set())
    assert memory.committed == {("t", 0), ("t", 1)}


async def test_positions_that_the_broker_tells_are_remembered_too():
    """A group that is older than its memory."""
    seen: set[Any] = set()
    asked = coordinator(with_checked_positions(scripted(answer((0, 5), (1, -1))), seen=seen.update))
    await asked._do_fetch_commit_offsets([P0, P1])
    assert seen == {("t", 0)}


# What the client would lose or set back


@pytest.mark.parametrize(("polled", "again"), [({P0: [5]}, 6), ({}, 2)])
async def test_what_was_unpacked_beside_a_broken_batch_is_fetched_again(
    polled: dict[TopicPartition, list[int]], again: int, client: Client, make: Callable[..., GroupConsumer]
):
    """P1: the client moved on over records that it never gave out."""
    client.assigned = {P0}
    client.known = {P0: 2}
    client.polls = [{key: [record(offset) for offset in offsets] for key, offsets in polled.items()}, CorruptRecordException(), {}]
    consumer = make()
    await consumer.poll(set())
    with pytest.raises(OutageError):
        await consumer.poll(set())
    assert client.sought == {}
    await consumer.poll(set())
    assert client.sought == {P0: again}


async def test_a_commit_under_way_ends_when_the_partitions_go(client: Client, make: Callable[..., GroupConsumer]):
    """P6: the client would repeat it under the next generation, over what the next owner committed."""
    consumer, client.commit_blocks = make(), anyio.Event()
    answers: list[bool] = []

    async def commit() -> None:
        answers.append(await consumer.commit({("t", 0): 5}))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(commit)
            await anyio.wait_all_tasks_blocked()
            consumer._end_commits()
    assert answers == [False]
    assert client.commits == []


@pytest.mark.parametrize("generation", [-1, 4])
async def test_nobody_commits_who_is_not_a_member(generation: int):
    """A worker that hung while another finished and left would set the group back: the broker takes it for an administrator."""
    send = with_members_commits(scripted("taken"))
    request = OffsetCommitRequest("g", generation, "", -1, [("t", [(0, 5, "")])])
    if generation < 0:
        with pytest.raises(IllegalGenerationError):
            await send(1, request)
    else:
        assert await send(1, request) == "taken"


@pytest.mark.parametrize("task", ["fetching", "coordinating"])
async def test_a_client_that_broke_down_stops_the_worker(task: str, client: Client, make: Callable[..., GroupConsumer]):
    """War story 24: it would own partitions, be given nothing, and look healthy."""
    getattr(client, task).is_dead = True
    with pytest.raises(HaltError, match="broke down"):
        await make().poll(set())


async def test_a_stopped_client_has_no_records(client: Client, make: Callable[..., GroupConsumer]):
    client.polls = [ConsumerStoppedError()]
    assert await make().poll(set()) == {}


@pytest.mark.parametrize("error", [CommitFailedError(), IllegalStateError("revoked")])
async def test_a_refused_commit_is_an_answer(error: Exception, client: Client, make: Callable[..., GroupConsumer]):
    client.commit_error = error
    assert not await make().commit({("t", 0): 5})


async def test_a_commit_without_an_answer_is_an_outage(client: Client, make: Callable[..., GroupConsumer]):
    client.commit_error = NodeNotReadyError()
    with pytest.raises(OutageError):
        await make().commit({("t", 0): 5})


async def test_stopping_is_bounded(client: Client, make: Callable[..., GroupConsumer], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("infra.kafka.consumer.STOP_WITHIN_S", 0.01)
    client.hangs = True
    with anyio.fail_after(5):
        await make().stop()


class Deaf:
    """A listener without interest."""

    async def on_revoked(self, partitions: Any) -> None: ...

    async def on_assigned(self, partitions: Any) -> None: ...


@pytest.mark.parametrize("kind", ["real", "memory"])
async def test_only_assigned_partitions_are_committed(kind: str, client: Client, make: Callable[..., GroupConsumer]):
    """The fake keeps the promise of the real one."""
    client.assigned = {P0}
    consumer: Consumer = make()
    if kind == "memory":
        memory = MemoryConsumer({("t", 0): [], ("t", 1): []})
        await memory.start(Deaf())
        await memory.rebalance([("t", 0)])
        consumer = memory

    def committed() -> dict[tuple[str, int], int]:
        if kind == "memory":
            return dict(memory.commits)
        return {(key.topic, key.partition): position for one in client.commits for key, position in one.items()}

    assert not await consumer.commit({("t", 1): 5})
    assert committed() == {}
    assert not await consumer.commit({("t", 0): 5, ("t", 1): 5})
    assert await consumer.commit({("t", 0): 6})
    assert committed() == {("t", 0): 6}


# Sharing


@pytest.mark.parametrize("members", range(1, 7))
async def test_every_member_gets_its_share_of_each_topic(members: int):
    """Shared by count alone, one member had the whole input and another the replays, which are empty on most days."""
    consumer = GroupConsumer(KafkaConnection("localhost:1"), group="g", topics=["t"])
    (assignor,) = consumer._client._partition_assignment_strategy
    await consumer.stop()
    topics = ["queries", "queries.replay"]
    cluster = SimpleNamespace(partitions_for_topic=lambda _: set(range(6)))
    assigned = assignor.assign(cluster, {f"m{n}": assignor.metadata(topics) for n in range(members)})
    shares = [dict(one.assignment) for one in assigned.values()]
    for topic in topics:
        counts = [len(share.get(topic, ())) for share in shares]
        assert (sum(counts), min(counts) >= 6 // members, max(counts) <= -(-6 // members)) == (6, True, True)


# Start


@pytest.mark.parametrize("name", ["snappy", "lz4", "zstd"])
async def test_a_codec_that_is_missing_is_named_before_anything_is_read(name: str, monkeypatch: pytest.MonkeyPatch):
    """Case 6: found at the first such record, it would stop the consumer again and again."""
    monkeypatch.setattr(codec, f"has_{name}", lambda: False)
    consumer = GroupConsumer(KafkaConnection("localhost:1"), group="g", topics=["t"])
    with pytest.raises(ConfigError, match=name):
        await consumer.start(Deaf())
    await consumer.stop()


def test_every_codec_is_installed_here():
    check_codecs()


@pytest.mark.parametrize("address", [f"127.0.0.1:{free_port()}", "no.such.host.invalid:9092", "localhost:port"])
async def test_an_unreachable_cluster_is_one_sentence_within_seconds(address: str):
    consumer = GroupConsumer(KafkaConnection(address), group="g", topics=["t"])
    with anyio.fail_after(5), pytest.raises(ConfigError, match="cannot be reached"):
        await consumer.start(Deaf())


async def test_a_broker_that_takes_connections_and_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("infra.kafka.connection.CONNECT_WITHIN_S", 0.3)
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, hold)
        _, port = listener.extra_attributes[SocketAttribute.local_address]()
        consumer = GroupConsumer(KafkaConnection(f"127.0.0.1:{port}"), group="g", topics=["t"])
        with anyio.fail_after(5), pytest.raises(ConfigError, match="cannot be reached"):
            await consumer.start(Deaf())
        tasks.cancel_scope.cancel()


async def hold(stream: SocketStream) -> None:
    async with stream:
        await anyio.sleep_forever()
