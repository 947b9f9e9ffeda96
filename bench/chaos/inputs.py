"""What the inputs of a run ask for. Pure: the same seed gives the same inputs."""

import random
from dataclasses import asdict, dataclass, replace
from typing import Final, Literal
from uuid import uuid5

import orjson

from bench.chaos.facts import EffectKind
from infra.clock import SystemClock
from topics.catalogue import Catalogue
from topics.envelope import NAMESPACE, encode
from topics.events import QueryAsked
from topics.records import OutboundRecord

TENANT: Final = "chaos"
SOURCE: Final = "chaos"

Behaviour = Literal["work", "reject", "raise", "crash"]


@dataclass(frozen=True, slots=True)
class Task:
    """What one input asks a handler to do.

    `work_ms` passes half before the effect is begun and half after it. Before it is begun, the model is called `calls` times,
    each call when the meter lets it. The outside world refuses the first `fails` calls of its
    effect. `does`: `work`; `reject` and `raise` fail by an error of that kind; `crash` kills the process.
    """

    event_id: str
    key: str
    effect: EffectKind = "write"
    work_ms: int = 50
    fails: int = 0
    does: Behaviour = "work"
    calls: int = 0
    tenant: str = TENANT


def make_tasks(seed: int, count: int, *, keys: int, work_ms: tuple[int, int], fails: float = 0.02) -> list[Task]:
    """Tasks over a number of keys: half of them WRITE, a third IRREVERSIBLE, the rest without an effect.

    Args:
        work_ms: The shortest and the longest work.
        fails: The share of WRITE tasks whose effect is refused once.
    """
    draw = random.Random(seed)
    return [_task(draw, number, keys=keys, work_ms=work_ms, fails=fails) for number in range(count)]


def _task(draw: random.Random, number: int, *, keys: int, work_ms: tuple[int, int], fails: float) -> Task:
    effect: EffectKind = draw.choices(("write", "irreversible", "none"), weights=(3, 2, 1))[0]
    task = Task(f"q{number}", f"k{draw.randrange(keys)}", effect, work_ms=draw.randint(*work_ms))
    return replace(task, fails=1) if effect == "write" and draw.random() < fails else task


def record_of(task: Task, *, catalogue: Catalogue) -> OutboundRecord:
    """The record that asks for a task."""
    return encode(
        QueryAsked(thread_id=task.key, text=orjson.dumps(asdict(task)).decode()),
        catalogue=catalogue,
        tenant=task.tenant,
        source=SOURCE,
        now=SystemClock().now(),
        ordinal="0",
        event_id=task.event_id,
    )


def task_of(text: str) -> Task:
    """The task that a question's text spells."""
    return Task(**orjson.loads(text))


def claim_id_of(task: Task) -> str:
    """How our inbox knows the task's record."""
    return str(uuid5(NAMESPACE, f"{task.tenant}\n{SOURCE}\n{task.event_id}\n"))
