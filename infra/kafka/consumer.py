"""The door to aiokafka's consumer: poll, explicit commits, and a listener that may drain before partitions go.

Traps of aiokafka 0.14 that this file keeps closed: a bare commit commits the fetch position of every partition; `pause` throws the
prefetched records away; rebalances are eager and reset positions; a sticky assignor keeps its state on the class; a start that has
subscribed waits for the group without a bound; and an answer about committed positions that failed as a whole, as it does while a
coordinator loads, is read as "nothing was committed", so that a group would begin anew.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, Literal, Protocol

import anyio
import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, codec
from aiokafka import TopicPartition as ClientPartition
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import (
    CommitFailedError,
    ConsumerStoppedError,
    GroupAuthorizationFailedError,
    IllegalStateError,
    KafkaError,
    NoOffsetForPartitionError,
    NotCoordinatorForGroupError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnsupportedCodecError,
    for_code,
)
from aiokafka.protocol.commit import OffsetFetchRequest

from infra.kafka.connection import KafkaConnection
from topics.errors import ConfigError, HaltError, OutageError
from topics.records import RawRecord

TopicPartition = tuple[str, int]

POLL_TIMEOUT_MS: Final = 200
POLL_RECORDS: Final = 500
STOP_WITHIN_S: Final = 15.0
COMMIT_WITHIN_S: Final = 10.0
DAY_MS: Final = 86_400_000

_log: Any = structlog.get_logger("sluice.consumer")


class RebalanceListener(Protocol):
    """Who wants to know about assignments."""

    async def on_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions are about to be taken: finish, commit, let go."""
        ...

    async def on_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """The whole new assignment."""
        ...


class Consumer(Protocol):
    """A member of a consumer group, as far as the runtime needs one."""

    async def start(self, listener: RebalanceListener) -> None:
        """Join the group."""
        ...

    async def poll(self, full: set[TopicPartition]) -> dict[TopicPartition, list[RawRecord]]:
        """The next records of partitions that are not full.

        Raises:
            OutageError: The broker did not answer; nothing was consumed.
            HaltError: A position is lost, a codec is missing, or access is denied.
        """
        ...

    async def commit(self, positions: dict[TopicPartition, int]) -> bool:
        """Commit the next positions to read. False when not all of them are: somebody else owns those now."""
        ...

    async def stop(self) -> None:
        """Leave the group, within a bound."""
        ...


class GroupConsumer:
    """A member of a consumer group on a real cluster."""

    def __init__(
        self,
        connection: KafkaConnection,
        *,
        group: str,
        topics: Sequence[str],
        new_group_reads_from: Literal["earliest", "latest"] = "earliest",
        revoke_drain_s: float = 20.0,
        session_timeout_s: float = 10.0,
    ) -> None:
        # The assignor keeps its state on the class: two consumers of one process would overwrite each other's.
        assignor = type("Sticky", (StickyPartitionAssignor,), {"member_assignment": None, "generation": -1})
        rebalance_s = revoke_drain_s + COMMIT_WITHIN_S + 10
        self._client: Any = AIOKafkaConsumer(
            **connection.client_options(),
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            partition_assignment_strategy=(assignor,),
            session_timeout_ms=int(session_timeout_s * 1000),
            heartbeat_interval_ms=int(session_timeout_s * 300),
            rebalance_timeout_ms=int(rebalance_s * 1000),
            request_timeout_ms=int((rebalance_s + 5) * 1000),
            max_poll_interval_ms=DAY_MS,  # progress is judged by our own health check, not by how often we ask
            metadata_max_age_ms=30_000,
        )
        cluster = self._client._client  # noqa: SLF001 -- the one place where an answer is seen whole; see the module
        cluster.send = with_checked_positions(cluster.send)
        self._connection = connection
        self._group = group
        self._topics = list(topics)
        self._new_group_reads_from = new_group_reads_from

    async def start(self, listener: RebalanceListener) -> None:
        """Connect, and begin to join the group: the listener hears of the first assignment.

        Raises:
            ConfigError: The cluster cannot be reached or refuses us, a topic is missing, or a codec is.
        """
        check_codecs()
        try:
            with self._connection.connecting():
                await self._client.start()
                _refuse_missing(self._topics, await self._client.topics())
        except ConfigError:
            await self.stop()
            raise
        self._client.subscribe(self._topics, listener=_Listener(listener))

    async def poll(self, full: set[TopicPartition]) -> dict[TopicPartition, list[RawRecord]]:
        """The next records of partitions that are not full; see `Consumer`."""
        wanted = [one for one in self._client.assignment() if (one.topic, one.partition) not in full]
        if full and not wanted:
            await anyio.sleep(POLL_TIMEOUT_MS / 1000)
            return {}
        try:
            batches = await self._client.getmany(*wanted, timeout_ms=POLL_TIMEOUT_MS, max_records=POLL_RECORDS)
        except NoOffsetForPartitionError as error:
            await self._begin(error.args[0])
            return {}
        except ConsumerStoppedError:
            return {}
        except KafkaError as error:
            raise _meaning_of(error) from error
        return {(key.topic, key.partition): [raw_record(record) for record in records] for key, records in batches.items()}

    async def _begin(self, partition: ClientPartition) -> None:
        """Apply the rule for new groups to a partition that this group never committed, and commit where it begins.

        Committed at once: a group that reads from the end and is restarted before its first record would skip what came meanwhile.
        """
        _log.debug("no_committed_position", group=self._group, partition=str(partition), reads_from=self._new_group_reads_from)
        look_up = self._client.beginning_offsets if self._new_group_reads_from == "earliest" else self._client.end_offsets
        try:
            position: int = (await look_up([partition]))[partition]
            if await self.commit({(partition.topic, partition.partition): position}):
                self._client.seek(partition, position)
        except (IllegalStateError, KafkaError) as error:
            raise OutageError(f"cannot find where {partition} begins") from error

    async def commit(self, positions: dict[TopicPartition, int]) -> bool:
        """Commit explicit positions of partitions that are ours, within a bound; see `Consumer`."""
        assigned = self._client.assignment()
        offsets = {
            ClientPartition(*partition): position
            for partition, position in positions.items()
            if ClientPartition(*partition) in assigned
        }
        if not offsets:
            return False
        try:
            with anyio.fail_after(COMMIT_WITHIN_S):
                await self._client.commit(offsets)
        except (CommitFailedError, IllegalStateError):
            return False
        except (KafkaError, TimeoutError) as error:
            raise OutageError(f"the commit of {self._group} was not acknowledged") from error
        return len(offsets) == len(positions)

    async def stop(self) -> None:
        """Leave the group. A broker that is gone does not hold us up."""
        with anyio.move_on_after(STOP_WITHIN_S) as scope:
            await self._client.stop()
        if scope.cancelled_caught:
            _log.warning("consumer_did_not_stop", group=self._group)


class _Listener(ConsumerRebalanceListener):  # its methods may be coroutines, whatever its annotations say
    """aiokafka's listener; it runs inside the coordinator's task while heartbeats go on."""

    def __init__(self, listener: RebalanceListener) -> None:
        self._listener = listener

    async def on_partitions_revoked(self, revoked: Iterable[ClientPartition]) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] -- see the class
        await self._listener.on_revoked([(one.topic, one.partition) for one in revoked])

    async def on_partitions_assigned(self, assigned: Iterable[ClientPartition]) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] -- see the class
        await self._listener.on_assigned([(one.topic, one.partition) for one in assigned])


def check_codecs() -> None:
    """See that every codec that a producer or a topic may choose can be read.

    Raises:
        ConfigError: Some cannot. Found later, the consumer would stop at the first such record, and again after every restart.
    """
    readable = {"gzip": codec.has_gzip, "snappy": codec.has_snappy, "lz4": codec.has_lz4, "zstd": codec.has_zstd}
    missing = [name for name, is_readable in readable.items() if not is_readable()]
    if missing:
        raise ConfigError(f"records compressed with {', '.join(missing)} cannot be read: install aiokafka[lz4,snappy,zstd]")


def _refuse_missing(wanted: Iterable[str], found: Iterable[str]) -> None:
    missing = sorted(set(wanted) - set(found))
    if missing:
        raise ConfigError(f"topics are missing ({', '.join(missing)}): `sluice topics apply` creates them")


def with_checked_positions(send: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Let a failed answer about committed positions be a failure: aiokafka looks at its single partitions only.

    What passes is an answer without an error that speaks of every partition that was asked about. Anything else is raised, as
    an error that makes the client look for the coordinator again and ask once more, unless the broker denies the group.
    """

    async def checked(node_id: Any, request: Any, **how: Any) -> Any:
        response = await send(node_id, request, **how)
        if isinstance(request, OffsetFetchRequest):
            group, asked = _asked_about(request)
            told = {(topic, one[0]) for topic, partitions in response.topics for one in partitions}
            error = for_code(getattr(response, "error_code", 0))
            if error is GroupAuthorizationFailedError:
                raise error(group)
            if error.errno or not asked <= told:
                raise NotCoordinatorForGroupError(error.message)
        return response

    return checked


def _asked_about(request: Any) -> tuple[str, set[TopicPartition]]:
    asked = {(topic, number) for topic, numbers in request._partitions or () for number in numbers}  # noqa: SLF001 -- as above
    return request._consumer_group, asked  # noqa: SLF001 -- as above


def _meaning_of(error: KafkaError) -> HaltError | OutageError:
    match error:
        case OffsetOutOfRangeError():
            where = ", ".join(f"{key.topic}/{key.partition} at {offset}" for key, offset in dict(error.args[0]).items())
            return HaltError(
                f"the committed position is no longer in the log ({where}): records were deleted before they were read. "
                "Nothing was skipped; set the position by hand, then start again.",
                code="offset_out_of_range",
            )
        case TopicAuthorizationFailedError() | GroupAuthorizationFailedError():
            return ConfigError(f"the broker denies access: {error}")
        case UnsupportedCodecError():
            return ConfigError(f"a record is compressed with a codec that is not installed: {error}")
        case UnknownTopicOrPartitionError():
            return OutageError("a topic is missing; `sluice topics apply` creates it")
        case _:
            return OutageError(f"the broker did not answer: {type(error).__name__}")


def raw_record(record: Any) -> RawRecord:
    """A client's record as plain bytes."""
    return RawRecord(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
        timestamp_ms=record.timestamp if record.timestamp and record.timestamp > 0 else None,
    )
