"""A group's committed positions, from outside the group: looked at, and set while nobody works."""

from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

import anyio
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as ClientPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError, UnknownTopicOrPartitionError
from aiokafka.structs import OffsetAndMetadata

from infra.kafka.connection import KafkaConnection
from infra.kafka.guards import refuse_missing, with_checked_positions
from infra.positions import TopicHistory, TopicPartition
from topics.errors import ConfigError, OutageError, RejectedError

ANSWER_WITHIN_S: Final = 20.0
NOTE_CHARACTERS: Final = 500  # brokers refuse more than 4,096 bytes beside a position

State = Literal["ok", "new", "lost", "out_of_range"]


@dataclass(frozen=True, slots=True)
class PartitionPositions:
    """One partition as a group stands on it. `begin` is the first position in the log, `end` the one behind its last record."""

    topic: str
    partition: int
    committed: int | None
    begin: int
    end: int

    @property
    def lag(self) -> int | None:
        """Positions that the group has still to pass, transactions' markers included. None where it stands nowhere."""
        return None if self.committed is None else max(0, self.end - self.committed)

    def state(self, history: TopicHistory) -> State:
        """What a worker would make of it, given what the group remembers."""
        if self.committed is None:
            return "lost" if self.partition in history.committed else "new"
        return "ok" if self.begin <= self.committed <= self.end else "out_of_range"


class GroupOffsets:
    """Positions of one group, while a client is open; see `open_offsets`."""

    def __init__(self, client: Any, admin: Any, *, group: str) -> None:
        self._client = client
        self._admin = admin
        self._group = group

    async def look(self) -> list[PartitionPositions]:
        """Every partition of the topics, in order.

        Raises:
            OutageError: The broker does not answer.
        """
        partitions = sorted(self._client.assignment())
        with _answering():
            begins, ends = await self._client.beginning_offsets(partitions), await self._client.end_offsets(partitions)
            committed = {one: await self._client.committed(one) for one in partitions}
        return [PartitionPositions(one.topic, one.partition, committed[one], begins[one], ends[one]) for one in partitions]

    async def at(self, at_ms: int, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The first record written at or after an instant (epoch milliseconds); the end where there is none.

        Raises:
            OutageError: The broker does not answer.
        """
        wanted = [ClientPartition(*one) for one in partitions]
        with _answering():
            found = await self._client.offsets_for_times(dict.fromkeys(wanted, at_ms))
            ends = await self._client.end_offsets(wanted)
        return {(one.topic, one.partition): ends[one] if found[one] is None else found[one].offset for one in wanted}

    async def members(self) -> int:
        """How many members the group has.

        Raises:
            OutageError: The broker does not answer.
        """
        with _answering():
            (answer,) = await self._admin.describe_consumer_groups([self._group])
        return sum(len(group[5]) for group in answer.groups if not group[0])

    async def set(self, positions: Mapping[TopicPartition, int], *, note: str) -> None:
        """Commit positions for the group. The broker takes them only while the group has no members.

        Args:
            note: Kept beside the positions until the next commit.

        Raises:
            RejectedError: A worker is in the group. Nothing was set.
            OutageError: The broker does not answer. Setting again is harmless.
        """
        offsets = {ClientPartition(*one): OffsetAndMetadata(at, note[:NOTE_CHARACTERS]) for one, at in positions.items()}
        with _answering():
            try:
                with anyio.fail_after(ANSWER_WITHIN_S):
                    await self._client.commit(offsets)
            except (CommitFailedError, IllegalStateError) as error:
                raise group_is_at_work(self._group) from error


def group_is_at_work(group: str) -> RejectedError:
    """Why positions cannot be set now."""
    return RejectedError(
        f"{group} has members: they would go on from where they are, and commit over what is set. Stop its workers first",
        code="group_is_at_work",
    )


@asynccontextmanager
async def open_offsets(connection: KafkaConnection, *, group: str, topics: Sequence[str]) -> AsyncGenerator[GroupOffsets]:
    """Look at a group from outside. It does not join, so no worker notices.

    Raises:
        ConfigError: The cluster cannot be reached, or a topic is missing.
    """
    options = connection.client_options()
    client: Any = AIOKafkaConsumer(
        **options,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level="read_committed",
        request_timeout_ms=int(ANSWER_WITHIN_S * 1000),
    )
    cluster = client._client  # noqa: SLF001 -- the one place where an answer is seen whole; see guards.py
    cluster.send = with_checked_positions(cluster.send)
    admin: Any = AIOKafkaAdminClient(**options, request_timeout_ms=int(ANSWER_WITHIN_S * 1000))
    try:
        with connection.connecting():
            await client.start()
            await admin.start()
        client.assign(await _partitions(admin, topics))
        yield GroupOffsets(client, admin, group=group)
    finally:
        with anyio.move_on_after(5, shield=True):
            await client.stop()
            await admin.close()


async def _partitions(admin: Any, topics: Sequence[str]) -> list[ClientPartition]:
    with _answering():
        described: list[dict[str, Any]] = await admin.describe_topics(list(topics))
    numbers = {one["topic"]: [part["partition"] for part in one["partitions"]] for one in described if not one["error_code"]}
    refuse_missing(topics, numbers)
    return [ClientPartition(topic, number) for topic, found in numbers.items() for number in found]


@contextmanager
def _answering() -> Generator[None]:
    try:
        yield
    except UnknownTopicOrPartitionError as error:
        raise ConfigError("a topic went away: `sluice topics apply` creates it") from error
    except (KafkaError, TimeoutError) as error:
        raise OutageError(f"the broker does not answer: {type(error).__name__}") from error
