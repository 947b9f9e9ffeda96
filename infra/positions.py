"""Where a group begins on a partition for which the broker knows no committed position, and what it remembers for that. Pure.

The broker forgets positions: they expire, are deleted, or go with a topic that is made anew. Then an old group looks like a new
one, and the rule for new groups would skip what was not read, or read all of it again. So the group remembers outside the broker
what it has committed once.
Source: `docs/decisions/0012-lost-positions.md`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

from topics.errors import HaltError

TopicPartition = tuple[str, int]
Rule = Literal["earliest", "latest"]


@dataclass(frozen=True, slots=True)
class TopicHistory:
    """What a group remembers of one topic.

    `began_with` is the number of partitions that the topic had when the group first read it; None when it never did, or did
    before it had a memory. `committed` are the partitions of which it has committed a position at least once.
    """

    began_with: int | None = None
    committed: frozenset[int] = frozenset()


class PositionMemory(Protocol):
    """What one group remembers, outside the broker. Every call raises OutageError when there is no answer."""

    async def history(self, topic: str) -> TopicHistory:
        """What is known of a topic."""
        ...

    async def begin(self, topic: str, *, partitions: int) -> TopicHistory:
        """Remember how many partitions a topic has as the group begins it; the first word stands. Returns what is known now."""
        ...

    async def remember(self, committed: Iterable[TopicPartition]) -> None:
        """Remember partitions of which a position was committed."""
        ...


def beginning(partition: int, history: TopicHistory, *, rule: Rule) -> Rule | Literal["lost"]:
    """Where to begin on a partition without a committed position.

    A partition that came later is read from its first record, whatever the rule: what was written before anybody saw it counts.
    """
    if partition in history.committed:
        return "lost"
    if history.began_with is None:
        return "earliest" if history.committed else rule
    return rule if partition < history.began_with else "earliest"


def position_lost(group: str, topic: str, partition: int) -> HaltError:
    """What stops a worker whose position is gone."""
    return HaltError(
        f"the position of {group} on {topic}/{partition} is gone: it expired, was deleted, or the topic was made anew. "
        f"Nothing was read. Say where to go on, then start again: {remedy(group, topic, partition)}",
        code="offset_lost",
    )


def position_out_of_range(
    group: str, topic: str, partition: int, *, position: int, begin: int | None, end: int | None
) -> HaltError:
    """What stops a worker whose position is not in the log. `begin` and `end` are None when the broker does not tell them."""
    if begin is not None and position < begin:
        why = f"the log begins at {begin}: records were deleted before they were read"
    elif end is not None and position > end:
        why = f"the log ends at {end}: it was cut, restored, or the topic was made anew"
    else:
        why = "it is not in the log"
    return HaltError(
        f"the position of {group} on {topic}/{partition} is {position}, but {why}. "
        f"Nothing was skipped. Say where to go on, then start again: {remedy(group, topic, partition)}",
        code="offset_out_of_range",
    )


def remedy(group: str, topic: str, partition: int) -> str:
    """The command that sets the position."""
    return f"sluice offsets set --group {group} --topic {topic} --partition {partition} --to earliest --because '...'"
