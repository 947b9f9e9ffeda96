"""What is done to whom, and when. Pure: a seed gives a schedule, a schedule can be printed, kept and run again exactly."""

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import repeat
from typing import Final, Literal

import orjson

Kind = Literal["kill", "freeze", "stop", "broker_kill", "redis_kill", "kafka_cut", "kafka_reset", "redis_cut"]

OTHERS: Final[tuple[Kind, ...]] = ("freeze", "stop", "kafka_cut", "kafka_reset", "redis_kill", "redis_cut", "broker_kill")


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


def mixed(seed: int, *, kills: int, others: int, workers: int = 3, every_s: tuple[float, float] = (2.0, 5.0)) -> list[Disturbance]:
    """Kills, and among them other disturbances of every kind, each kind as often as the next."""
    draw = random.Random(seed)
    kinds: list[Kind] = [*repeat("kill", kills), *(OTHERS[number % len(OTHERS)] for number in range(others))]
    draw.shuffle(kinds)
    at_s, schedule = 0.0, list[Disturbance]()
    for kind in kinds:
        at_s += draw.uniform(*every_s)
        schedule.append(_one(draw, round(at_s, 2), kind, workers))
        at_s += schedule[-1].for_s
    return schedule


def _one(draw: random.Random, at_s: float, kind: Kind, workers: int) -> Disturbance:
    match kind:
        case "kill" | "stop":
            return Disturbance(at_s, kind, f"w{draw.randint(1, workers)}")
        case "freeze":
            return Disturbance(at_s, kind, f"w{draw.randint(1, workers)}", for_s=round(draw.uniform(4.0, 6.0), 2))
        case "kafka_cut" | "redis_cut":
            return Disturbance(at_s, kind, for_s=round(draw.uniform(0.5, 2.0), 2))
        case _:
            return Disturbance(at_s, kind)


def to_text(schedule: Sequence[Disturbance]) -> str:
    """A line for each, for a file and for people."""
    return "".join(orjson.dumps(asdict(one)).decode() + "\n" for one in schedule)


def from_text(text: str) -> list[Disturbance]:
    """The schedule that `to_text` wrote.

    Raises:
        ValueError, TypeError: It is none.
    """
    return [Disturbance(**orjson.loads(line)) for line in text.splitlines() if line.strip()]
