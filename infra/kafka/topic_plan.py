"""What a cluster's topics are and what the catalogue says -> the steps that bring them together. Pure.

Nothing is deleted, ever. What could cost records, a shorter retention or another cleanup policy, is told and left as it is until
somebody allows it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from topics.catalogue import DEAD_LETTERS, Catalogue, TopicSpec

Action = Literal["create", "add_partitions", "too_many_partitions", "change", "differs"]

CLEANUP: Final = "cleanup.policy"
RETENTION: Final = "retention.ms"
MESSAGE_BYTES: Final = "max.message.bytes"
IN_SYNC: Final = "min.insync.replicas"
INPUT_BYTES: Final = 1_048_588  # what brokers allow when nobody says otherwise
ROOM_BYTES: Final = (
    1_048_576  # a dead letter is its record and our headers; without room for them it would hold its offset for ever
)
SAFE_REPLICAS: Final = 3  # from here on a record that was acknowledged should be on two machines


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """A topic on the cluster. `configs` lacks what the broker does not tell."""

    partitions: int
    replicas: int = 1
    configs: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Step:
    """One difference between the cluster and the catalogue. Partitions are only ever added; `differs` is left as it is."""

    topic: str
    action: Action
    partitions: int
    detail: str
    configs: Mapping[str, str] = field(default_factory=dict[str, str])


def steps(
    existing: Mapping[str, FoundTopic], catalogue: Catalogue, *, replicas: int = 1, allow_lowering: bool = False
) -> list[Step]:
    """Everything that differs, by topic.

    Args:
        replicas: Of topics that are made.
        allow_lowering: Also change what could cost records.
    """
    found: list[Step] = []
    largest = _largest_input(existing, catalogue)
    for topic, spec in sorted(catalogue.all_names().items()):
        one = existing.get(topic)
        wanted = _wanted(topic, spec, catalogue, largest=largest, replicas=one.replicas if one else replicas)
        if one is None or not one.partitions:
            found.append(Step(topic, "create", spec.partitions, f"{spec.partitions} partitions, {spec.cleanup}", wanted))
        else:
            found += _differences(topic, spec, one, wanted, allow_lowering=allow_lowering)
    return found


def _wanted(topic: str, spec: TopicSpec, catalogue: Catalogue, *, largest: int, replicas: int) -> dict[str, str]:
    """Broker-side settings of a topic."""
    carries_records = spec is DEAD_LETTERS or catalogue.is_replay(topic)
    wanted = {
        CLEANUP: spec.cleanup,
        RETENTION: str(spec.retention_ms),
        MESSAGE_BYTES: str(largest + ROOM_BYTES if carries_records else INPUT_BYTES),
    }
    if replicas >= SAFE_REPLICAS:
        wanted[IN_SYNC] = "2"
    return wanted


def _largest_input(existing: Mapping[str, FoundTopic], catalogue: Catalogue) -> int:
    names = (topic for topic, spec in catalogue.all_names().items() if spec.direction == "in" and not catalogue.is_replay(topic))
    sizes = (existing[name].configs.get(MESSAGE_BYTES) for name in names if name in existing)
    return max([INPUT_BYTES, *(int(size) for size in sizes if size)])


def _differences(topic: str, spec: TopicSpec, one: FoundTopic, wanted: Mapping[str, str], *, allow_lowering: bool) -> list[Step]:
    found: list[Step] = []
    if one.partitions < spec.partitions:
        detail = f"from {one.partitions}; keys move to other partitions"
        found.append(Step(topic, "add_partitions", spec.partitions, detail))
    elif one.partitions > spec.partitions:
        found.append(Step(topic, "too_many_partitions", one.partitions, f"the catalogue says {spec.partitions}; left as it is"))
    for name, value in wanted.items():
        now = one.configs.get(name)
        if now is None or now == value or (name in {MESSAGE_BYTES, IN_SYNC} and int(now) > int(value)):
            continue  # larger records and more copies than we need are the operator's to choose
        if _is_safe(name, now, value) or allow_lowering:
            found.append(Step(topic, "change", one.partitions, f"{name} from {now} to {value}", {name: value}))
        else:
            found.append(Step(topic, "differs", one.partitions, f"{name} is {now}, the catalogue says {value}; left as it is"))
    return found


def _is_safe(name: str, now: str, value: str) -> bool:
    """Whether a change only keeps more than before. Retention below 0 is for ever."""
    if name == CLEANUP:
        return False
    return name != RETENTION or 0 <= int(now) < int(value)
