"""What operators do with the positions of our groups: look at them, and set them while nobody works."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from infra.clock import SystemClock
from infra.kafka.offsets import GroupOffsets, PartitionPositions, group_is_at_work, open_offsets
from infra.positions import TopicHistory, TopicPartition
from infra.redis.client import connect
from infra.redis.keys import Keys
from infra.redis.positions import RedisPositionMemory
from infra.settings import Settings
from topics.catalogue import Catalogue
from topics.errors import RejectedError
from workers.readers import READERS

INSTANT: Final = "at:"

Target = Literal["earliest", "latest"] | int | datetime


@dataclass(frozen=True, slots=True)
class Standing:
    """One partition as a group stands on it, and what a worker would make of it: ok, new, lost, or out_of_range."""

    group: str
    topic: str
    partition: int
    committed: int | None
    begin: int
    end: int
    lag: int | None
    state: str


@dataclass(frozen=True, slots=True)
class Change:
    """A position before and after. `skips` counts positions that nobody will read; `again` those that are read once more."""

    topic: str
    partition: int
    before: int | None
    after: int
    skips: int
    again: int


def parse_target(text: str) -> Target:
    """What `--to` names: earliest, latest, a position, or `at:` and an instant with its zone.

    Raises:
        RejectedError: It is none of these.
    """
    if text == "earliest" or text == "latest":  # noqa: PLR1714 -- a set would lose the literal type
        return text
    try:
        if text.startswith(INSTANT):
            instant = datetime.fromisoformat(text.removeprefix(INSTANT))
            if instant.tzinfo is not None:
                return instant.astimezone(UTC)
        elif (position := int(text)) >= 0:
            return position
    except (ValueError, OverflowError):
        pass
    raise RejectedError(
        "--to wants earliest, latest, a position, or an instant with its zone such as at:2026-05-01T12:00:00Z", code="bad_target"
    )


def groups(settings: Settings) -> dict[str, list[str]]:
    """Every group of ours -> the topics that it reads."""
    catalogue = Catalogue(settings.topic_prefix)
    return {
        f"{settings.group_prefix}.{worker}": [
            name for spec in inputs for name in (catalogue.name(spec), catalogue.replay_name(spec))
        ]
        for worker, inputs in READERS.items()
    }


def chosen(found: Sequence[PartitionPositions], *, topic: str | None, partition: int | None) -> list[PartitionPositions]:
    """The partitions that are named; all of them when none is.

    Raises:
        RejectedError: No such partition, or a number without a topic.
    """
    if partition is not None and topic is None:
        raise RejectedError("a --partition needs its --topic", code="nothing_named")
    wanted = [one for one in found if topic in (None, one.topic) and partition in (None, one.partition)]
    if not wanted:
        raise RejectedError(f"the group reads no {topic}" + ("" if partition is None else f"/{partition}"), code="unknown")
    return wanted


def change(one: PartitionPositions, after: int) -> Change:
    """What setting a position means for its records.

    Raises:
        RejectedError: It is not in the log.
    """
    if not one.begin <= after <= one.end:
        raise RejectedError(
            f"{one.topic}/{one.partition} has positions from {one.begin} to {one.end}, and not {after}", code="out_of_range"
        )
    before = one.begin if one.committed is None else min(max(one.committed, one.begin), one.end)
    return Change(one.topic, one.partition, one.committed, after, skips=max(0, after - before), again=max(0, before - after))


@dataclass(frozen=True, slots=True)
class Offsets:
    """The positions of our groups on a real cluster."""

    settings: Settings
    operator: str

    async def show(self, group: str | None = None) -> list[Standing]:
        """Every partition of every group, or of one."""
        names = groups(self.settings)
        return [one for name in ([group] if group else names) for one in await self._standings(name)]

    async def set(
        self, group: str, target: Target, *, topic: str | None, partition: int | None, because: str, dry_run: bool
    ) -> list[Change]:
        """Set positions of a group that has no members, and keep who did it and why.

        Raises:
            RejectedError: No reason, a group at work, or a position that is not in the log. Nothing was set.
            OutageError: Kafka or Redis does not answer. Setting again is harmless.
        """
        if not because.strip() and not dry_run:
            raise RejectedError("setting a position needs a reason: --because", code="reason_missing")
        async with self._open(group) as (offsets, memory):
            if await offsets.members():
                raise group_is_at_work(group)
            found = chosen(await offsets.look(), topic=topic, partition=partition)
            changes = [change(one, after) for one, after in zip(found, await _positions(offsets, found, target), strict=True)]
            if not dry_run:
                await self._commit(offsets, memory, changes, group=group, because=because)
        return changes

    async def changes(self, group: str | None = None) -> list[dict[str, Any]]:
        """Who set positions, and why; oldest first within a group."""
        names = [group] if group else list(groups(self.settings))
        found: list[dict[str, Any]] = []
        for name in names:
            _topics_of(self.settings, name)
            async with self._memory(name) as memory:
                found += await memory.changes()
        return found

    async def _standings(self, group: str) -> list[Standing]:
        async with self._open(group) as (offsets, memory):
            found = await offsets.look()
            histories: dict[str, TopicHistory] = {topic: await memory.history(topic) for topic in {one.topic for one in found}}
        return [
            Standing(group, one.topic, one.partition, one.committed, one.begin, one.end, one.lag, one.state(histories[one.topic]))
            for one in found
        ]

    async def _commit(
        self, offsets: GroupOffsets, memory: RedisPositionMemory, changes: Sequence[Change], *, group: str, because: str
    ) -> None:
        positions: dict[TopicPartition, int] = {(one.topic, one.partition): one.after for one in changes}
        await offsets.set(positions, note=f"set by {self.operator}: {because}")
        await memory.remember(positions)
        await memory.note_change(
            {
                "at": SystemClock().now().isoformat(),
                "by": self.operator,
                "because": because,
                "group": group,
                "changes": [asdict(one) for one in changes],
            }
        )

    @asynccontextmanager
    async def _open(self, group: str) -> AsyncGenerator[tuple[GroupOffsets, RedisPositionMemory]]:
        topics = _topics_of(self.settings, group)
        async with (
            open_offsets(self.settings.kafka(), group=group, topics=topics) as offsets,
            self._memory(group) as memory,
        ):
            yield offsets, memory

    @asynccontextmanager
    async def _memory(self, group: str) -> AsyncGenerator[RedisPositionMemory]:
        redis = connect(self.settings.redis_url, timeout_s=5.0, max_connections=4)
        try:
            yield RedisPositionMemory(redis, group=group, keys=Keys(self.settings.redis_prefix))
        finally:
            await redis.aclose()


async def _positions(offsets: GroupOffsets, found: Sequence[PartitionPositions], target: Target) -> list[int]:
    match target:
        case "earliest":
            return [one.begin for one in found]
        case "latest":
            return [one.end for one in found]
        case datetime():
            by_partition = await offsets.at(int(target.timestamp() * 1000), [(one.topic, one.partition) for one in found])
            return [by_partition[one.topic, one.partition] for one in found]
        case position:
            return [position for _ in found]


def _topics_of(settings: Settings, group: str) -> list[str]:
    known = groups(settings)
    if group not in known:
        raise RejectedError(f"no group {group}; there are: {', '.join(known)}", code="unknown")
    return known[group]
