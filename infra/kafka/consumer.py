"""The door to aiokafka's consumer: poll, explicit commits, and a listener that may drain before partitions go.

Traps of aiokafka 0.14 that this file keeps closed, together with `guards.py`:
- a bare commit commits the fetch position of every partition; `pause` throws the prefetched records away;
- rebalances are eager and reset positions;
- a start that has subscribed waits for the group without a bound;
- an answer about committed positions that failed as a whole, as it does while a coordinator loads, is read as "nothing was
  committed", so that a group would begin anew;
- a commit is repeated after a failure under whatever generation the member has by then, and without one as an administrator's:
  either can set back what another member committed meanwhile;
- a batch that cannot be unpacked takes with it the records of other partitions that were unpacked before it;
- when one of its tasks dies, it fetches nothing more and says nothing.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import anyio
import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka import TopicPartition as ClientPartition
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import (
    CommitFailedError,
    ConsumerStoppedError,
    GroupAuthorizationFailedError,
    IllegalStateError,
    InconsistentGroupProtocolError,
    KafkaError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnsupportedCodecError,
)

from infra.kafka.connection import KafkaConnection
from infra.kafka.guards import check_codecs, refuse_missing, with_checked_positions, with_members_commits
from infra.kafka.header_names import read_any_header_name
from infra.positions import PositionMemory, Rule, TopicHistory, beginning, position_lost, position_out_of_range
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

    def reached(self) -> dict[TopicPartition, int]:
        """Positions to read next. Everything below was polled, or is nothing that anybody is given: a transaction's marker."""
        ...

    async def commit(self, positions: dict[TopicPartition, int]) -> bool:
        """Commit the next positions to read. False when not all of them are: somebody else owns those now."""
        ...

    async def stop(self) -> None:
        """Leave the group, within a bound."""
        ...


class GroupConsumer:
    """A member of a consumer group on a real cluster.

    Without a `memory` every partition that has no committed position is taken for new.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        *,
        group: str,
        topics: Sequence[str],
        memory: PositionMemory | None = None,
        new_group_reads_from: Rule = "earliest",
        revoke_drain_s: float = 20.0,
        session_timeout_s: float = 10.0,
    ) -> None:
        rebalance_s = revoke_drain_s + COMMIT_WITHIN_S + 10
        self._client: Any = AIOKafkaConsumer(
            **connection.client_options(),
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            # Each topic is shared by all. The sticky one counts partitions: one member had the input, the other its replays.
            partition_assignment_strategy=(RoundRobinPartitionAssignor,),
            session_timeout_ms=int(session_timeout_s * 1000),
            heartbeat_interval_ms=int(session_timeout_s * 300),
            rebalance_timeout_ms=int(rebalance_s * 1000),
            request_timeout_ms=int((rebalance_s + 5) * 1000),
            max_poll_interval_ms=DAY_MS,  # progress is judged by our own health check, not by how often we ask
            metadata_max_age_ms=30_000,
        )
        cluster = self._client._client  # noqa: SLF001 -- the one place where an answer is seen whole; see the module
        cluster.send = with_members_commits(with_checked_positions(cluster.send, seen=self._saw_committed))
        self._connection = connection
        self._group = group
        self._topics = list(topics)
        self._memory: PositionMemory = memory or _NoMemory()
        self._new_group_reads_from: Rule = new_group_reads_from
        self._to_remember: set[TopicPartition] = set()
        self._remembered: set[TopicPartition] = set()
        self._polled: dict[ClientPartition, int] = {}
        self._is_ahead = False
        self._met: set[str] = set()
        self._commits: set[anyio.CancelScope] = set()

    async def start(self, listener: RebalanceListener) -> None:
        """Connect, and begin to join the group: the listener hears of the first assignment.

        Raises:
            ConfigError: The cluster cannot be reached or refuses us, a topic is missing, or a codec is.
        """
        check_codecs()
        read_any_header_name()
        try:
            with self._connection.connecting():
                await self._client.start()
                refuse_missing(self._topics, await self._client.topics())
        except ConfigError:
            await self.stop()
            raise
        self._client.subscribe(self._topics, listener=_Listener(listener, begun=self._forget_polled, ended=self._end_commits))

    async def poll(self, full: set[TopicPartition]) -> dict[TopicPartition, list[RawRecord]]:
        """The next records of partitions that are not full; see `Consumer`."""
        self._refuse_dead_client()
        self._refuse_deleted_topics()
        await self._remember()
        await self._step_back()
        wanted = [one for one in self._client.assignment() if (one.topic, one.partition) not in full]
        if full and not wanted:
            await anyio.sleep(POLL_TIMEOUT_MS / 1000)
            return {}
        try:
            batches = await self._client.getmany(*wanted, timeout_ms=POLL_TIMEOUT_MS, max_records=POLL_RECORDS)
        except NoOffsetForPartitionError:
            await self._begin()
            return {}
        except OffsetOutOfRangeError as error:
            raise await self._out_of_range(error) from error
        except ConsumerStoppedError:
            return {}
        except KafkaError as error:
            self._is_ahead = True
            raise _meaning_of(error) from error
        except Exception as error:  # what the client cannot unpack would otherwise be a bare traceback, at every start
            at = ", ".join(f"{topic}/{number} from {position}" for (topic, number), position in sorted(self.reached().items()))
            raise HaltError(
                f"the client failed while it unpacked records ({type(error).__name__}), at one of {at}: start it again; only "
                "what fails again at the same place has to be passed over, with `sluice offsets set`",
                code="unreadable_record",
            ) from error
        self._polled |= {key: records[-1].offset + 1 for key, records in batches.items()}
        return {(key.topic, key.partition): [raw_record(record) for record in records] for key, records in batches.items()}

    def reached(self) -> dict[TopicPartition, int]:
        """Positions to read next; see `Consumer`. Told only between one poll and the next, while they are true."""
        subscription = self._client._subscription.subscription  # noqa: SLF001 -- `position()` waits when there is none yet
        assignment = None if subscription is None else subscription.assignment
        if assignment is None or not assignment.active:
            return {}
        states = ((one, assignment.state_value(one)) for one in assignment.tps)
        return {(one.topic, one.partition): state.position for one, state in states if state.has_valid_position}

    def _refuse_dead_client(self) -> None:
        """A dead task of the client would leave us a member that is given nothing, or no member: neither shows."""
        tasks = (self._client._fetcher._fetch_task, self._client._coordinator._coordination_task)  # noqa: SLF001 -- told nowhere else
        if any(task.done() for task in tasks):
            raise HaltError(f"the Kafka client of {self._group} broke down; a new start mends it", code="client_died")

    def _refuse_deleted_topics(self) -> None:
        """A topic that is gone has no partitions to be assigned: its readers would wait without a word."""
        there = {topic for topic in self._topics if self._client.partitions_for_topic(topic)}
        gone = self._met - there
        self._met |= there
        if gone:
            raise OutageError(f"topics are missing ({', '.join(sorted(gone))}): `sluice topics apply` creates them")

    async def _step_back(self) -> None:
        """Fetch again what was unpacked and never given out, because something beside it failed."""
        if not self._is_ahead:
            return
        for partition in self._client.assignment():
            position = self._polled.get(partition)
            try:
                with anyio.fail_after(COMMIT_WITHIN_S):
                    position = await self._client.committed(partition) if position is None else position
                if position is not None:
                    self._client.seek(partition, position)
            except IllegalStateError:
                continue  # it went meanwhile, and its next owner begins at what is committed
            except (KafkaError, TimeoutError) as error:
                raise OutageError(f"cannot find where {partition} was") from error
        self._is_ahead = False

    async def _begin(self) -> None:
        """Begin on every partition without a committed position, and commit where.

        Committed at once: a group that reads from the end and is restarted before its first record would skip what came meanwhile.

        Raises:
            HaltError: There was a position once. Nothing was begun.
            OutageError: It cannot be told now, or not be committed. Nothing was begun.
        """
        try:
            with anyio.fail_after(COMMIT_WITHIN_S):
                partitions = [one for one in self._client.assignment() if await self._client.committed(one) is None]
                rules: dict[ClientPartition, Rule] = {one: await self._rule_for(one) for one in partitions}
                positions = await self._positions_by(rules)
            _log.info("no_committed_position", group=self._group, reads_from={str(one): rule for one, rule in rules.items()})
            if await self.commit({(one.topic, one.partition): position for one, position in positions.items()}):
                for one, position in positions.items():
                    self._client.seek(one, position)
        except (IllegalStateError, KafkaError, TimeoutError) as error:
            raise OutageError(f"cannot find where {self._group} begins") from error

    async def _rule_for(self, one: ClientPartition) -> Rule:
        history = await self._memory.history(one.topic)
        if history == TopicHistory():
            known: set[int] = self._client.partitions_for_topic(one.topic) or set()
            history = await self._memory.begin(one.topic, partitions=max(known | {one.partition}) + 1)
        rule = beginning(one.partition, history, rule=self._new_group_reads_from)
        if rule == "lost":
            raise position_lost(self._group, one.topic, one.partition)
        return rule

    async def _positions_by(self, rules: Mapping[ClientPartition, Rule]) -> dict[ClientPartition, int]:
        begins: dict[ClientPartition, int] = await self._client.beginning_offsets(
            [one for one in rules if rules[one] == "earliest"]
        )
        ends: dict[ClientPartition, int] = await self._client.end_offsets([one for one in rules if rules[one] == "latest"])
        return begins | ends

    async def _out_of_range(self, error: OffsetOutOfRangeError) -> HaltError:
        partition, position = next(iter(dict(error.args[0]).items()))
        try:
            begins, ends = await self._client.beginning_offsets([partition]), await self._client.end_offsets([partition])
            begin, end = begins[partition], ends[partition]
        except KafkaError:
            begin, end = None, None
        return position_out_of_range(self._group, partition.topic, partition.partition, position=position, begin=begin, end=end)

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
        with anyio.CancelScope() as scope:
            self._commits.add(scope)
            try:
                with anyio.fail_after(COMMIT_WITHIN_S):
                    await self._client.commit(offsets)
            except (CommitFailedError, IllegalStateError):
                return False
            except (KafkaError, TimeoutError) as error:
                raise OutageError(f"the commit of {self._group} was not acknowledged") from error
            finally:
                self._commits.discard(scope)
        if scope.cancelled_caught:
            return False
        self._saw_committed({(one.topic, one.partition) for one in offsets})
        return len(offsets) == len(positions)

    def _forget_polled(self) -> None:
        """A new assignment begins at what is committed."""
        self._polled.clear()
        self._is_ahead = False

    def _end_commits(self) -> None:
        """End commits that are still under way when the partitions go: repeated later, they would be another owner's."""
        for scope in self._commits:
            scope.cancel()

    def _saw_committed(self, partitions: set[TopicPartition]) -> None:
        self._to_remember |= partitions - self._remembered

    async def _remember(self) -> None:
        """Let the memory know what has a committed position, sooner or later: a memory that is away holds nobody up."""
        if not self._to_remember:
            return
        told = set(self._to_remember)
        try:
            await self._memory.remember(told)
        except OutageError as error:
            _log.warning("positions_not_remembered", group=self._group, why=str(error))
            return
        self._remembered |= told
        self._to_remember -= told

    async def stop(self) -> None:
        """Leave the group. A broker that is gone does not hold us up."""
        with anyio.move_on_after(STOP_WITHIN_S) as scope:
            await self._client.stop()
        if scope.cancelled_caught:
            _log.warning("consumer_did_not_stop", group=self._group)


class _Listener(ConsumerRebalanceListener):  # its methods may be coroutines, whatever its annotations say
    """aiokafka's listener; it runs inside the coordinator's task, one call after another, while heartbeats go on."""

    def __init__(self, listener: RebalanceListener, *, begun: Callable[[], None], ended: Callable[[], None]) -> None:
        self._listener = listener
        self._begun = begun
        self._ended = ended

    async def on_partitions_revoked(self, revoked: Iterable[ClientPartition]) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] -- see the class
        try:
            await self._listener.on_revoked([(one.topic, one.partition) for one in revoked])
        finally:
            self._ended()

    async def on_partitions_assigned(self, assigned: Iterable[ClientPartition]) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] -- see the class
        self._begun()
        await self._listener.on_assigned([(one.topic, one.partition) for one in assigned])


class _NoMemory:
    """Every partition is new."""

    async def history(self, topic: str) -> TopicHistory:
        del topic
        return TopicHistory()

    async def begin(self, topic: str, *, partitions: int) -> TopicHistory:
        del topic
        return TopicHistory(partitions)

    async def remember(self, committed: Iterable[TopicPartition]) -> None:
        del committed


def _meaning_of(error: KafkaError) -> HaltError | OutageError:
    match error:
        case TopicAuthorizationFailedError() | GroupAuthorizationFailedError():
            return ConfigError(f"the broker denies access: {error}")
        case UnsupportedCodecError():
            return ConfigError(f"a record is compressed with a codec that is not installed: {error}")
        case InconsistentGroupProtocolError():
            return ConfigError(
                "members of another version share the partitions in another way: stop all workers of this group first"
            )
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
