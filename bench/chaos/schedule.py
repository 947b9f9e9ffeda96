"""What is done to whom, and when. Pure: a seed gives a schedule, a schedule can be printed, kept and run again exactly."""

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import repeat
from typing import Final, Literal

import orjson

Kind = Literal[
    "kill",
    "freeze",
    "stop",
    "broker_kill",
    "broker_freeze",
    "kafka_cut",
    "kafka_black_hole",
    "kafka_reset",
    "kafka_latency",
    "kafka_trickle",
    "redis_kill",
    "redis_freeze",
    "redis_cut",
    "redis_black_hole",
    "redis_latency",
    "redis_trickle",
]

# What the mixed run does beside its kills, each as often as the next; what lasts, lasts between these seconds.
OTHERS: Final[tuple[Kind, ...]] = (
    "freeze",
    "stop",
    "kafka_cut",
    "redis_kill",
    "broker_kill",
    "kafka_reset",
    "redis_cut",
    "kafka_black_hole",
    "kafka_latency",
)
LASTS_S: Final[dict[Kind, tuple[float, float]]] = {
    "freeze": (4.0, 6.0),
    "kafka_cut": (0.5, 2.0),
    "kafka_black_hole": (2.0, 5.0),
    "kafka_latency": (3.0, 6.0),
    "redis_cut": (0.5, 2.0),
}


@dataclass(frozen=True, slots=True)
class Disturbance:
    """At `at_s` seconds after the start, do `kind` to `target`, for `for_s` seconds where it lasts. Workers are `w1` to `wN`."""

    at_s: float
    kind: Kind
    target: str = ""
    for_s: float = 0.0


def kill_loop(seed: int, *, kills: int, workers: int = 3, every_s: tuple[float, float] = (2.0, 8.0)) -> list[Disturbance]:
    """P1: one worker after another, at random, is killed and started again."""
    draw = random.Random(seed)
    at_s, schedule = 0.0, list[Disturbance]()
    for _ in range(kills):
        at_s += draw.uniform(*every_s)
        schedule.append(Disturbance(round(at_s, 2), "kill", f"w{draw.randint(1, workers)}"))
    return schedule


def mixed(seed: int, *, kills: int, others: int, workers: int = 3, every_s: tuple[float, float] = (1.0, 4.0)) -> list[Disturbance]:
    """Kills, and among them the other disturbances."""
    draw = random.Random(seed)
    kinds: list[Kind] = [*repeat("kill", kills), *(OTHERS[number % len(OTHERS)] for number in range(others))]
    draw.shuffle(kinds)
    at_s, schedule = 0.0, list[Disturbance]()
    for kind in kinds:
        at_s += draw.uniform(*every_s)
        target = f"w{draw.randint(1, workers)}" if kind in {"kill", "freeze", "stop"} else ""
        for_s = round(draw.uniform(*LASTS_S[kind]), 2) if kind in LASTS_S else 0.0
        schedule.append(Disturbance(round(at_s, 2), kind, target, for_s))
        at_s += for_s
    return schedule


def to_text(schedule: Sequence[Disturbance]) -> str:
    """A line for each, for a file and for people."""
    return "".join(orjson.dumps(asdict(one)).decode() + "\n" for one in schedule)


def from_text(text: str) -> list[Disturbance]:
    """The schedule that `to_text` wrote.

    Raises:
        ValueError, TypeError: It is none.
    """
    return [Disturbance(**orjson.loads(line)) for line in text.splitlines() if line.strip()]
