"""What is written down while a run is disturbed: one frozen type for each kind of fact.

`at_ns` is the machine's monotonic clock, which all processes share; `who` is the incarnation of a worker (each start of a process
is another one), or the part of the conductor that saw it. Partitions are named `topic/number`.
"""

from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

EffectKind = Literal["none", "write", "irreversible"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something that somebody saw at an instant."""

    at_ns: int
    who: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Published(Fact):
    """An input is on its topic, acknowledged. `claim_id` is how an inbox knows it; `effect` is what it asks the world for."""

    event_id: str
    claim_id: str
    key: str
    partition: str
    offset: int
    effect: EffectKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Fact):
    """A handler began. `epoch` is the engine's count of assignments, 0 where it has none."""

    event_id: str
    key: str
    partition: str
    offset: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed(Fact):
    """A worker is about to write a start of these records into its inbox: from here on they are in flight with it."""

    claim_ids: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted(Fact):
    """The handler holds its key's lease, with this fence."""

    event_id: str
    key: str
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun(Fact):
    """The ledger of effects let an effect begin (`new`), or knew it already. Asked at `asked_at_ns`, answered by `at_ns`."""

    event_id: str
    key: str
    fence: int
    asked_at_ns: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(Fact):
    """A handler ended: `done`, `in_doubt`, `cancelled`, or with the name of what it raised."""

    event_id: str
    key: str
    partition: str
    offset: int
    epoch: int
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled(Fact):
    """The inbox has a record's end: it will not run again."""

    claim_id: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Performed(Fact):
    """The outside world was called. `applied` says that it did something; `who` called, under this fence."""

    event_id: str
    key: str
    kind: EffectKind
    fence: int
    applied: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Called(Fact):
    """The model was called by `who`, for an event. `refused` says that the call was above the limit, and got a 429."""

    event_id: str
    refused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered(Fact):
    """An output is on its topic."""

    event_id: str
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Buried(Fact):
    """A dead letter is on its topic; `partition` and `offset` are those of the first origin."""

    partition: str
    offset: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed(Fact):
    """The broker told a group's position in a partition. Asked at `asked_at_ns`, answered by `at_ns`."""

    partition: str
    position: int
    asked_at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned(Fact):
    """A worker was given these partitions, all of them anew."""

    partitions: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Revoked(Fact):
    """A worker let go of partitions, after `dwell_s` seconds."""

    partitions: list[str]
    dwell_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbed(Fact):
    """The conductor did something to a target: a worker's incarnation, `broker`, `redis`, or a proxy. `ends` undoes it."""

    kind: str
    target: str
    ends: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined(Fact):
    """A worker process began."""

    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Left(Fact):
    """A worker that was asked to stop has ended; `code` is its exit code."""

    code: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled(Fact):
    """A worker told how much it holds. CPU seconds since its start."""

    running: int
    buffered: int
    rss_mb: float
    cpu_s: float


KINDS: Final[dict[str, type[Fact]]] = {kind.__name__: kind for kind in Fact.__subclasses__()}


def to_json(fact: Fact) -> dict[str, Any]:
    """A fact as plain JSON."""
    return {"fact": type(fact).__name__, **asdict(fact)}


def from_json(values: dict[str, Any]) -> Fact:
    """The fact again.

    Raises:
        KeyError, TypeError: It is none.
    """
    fields = dict(values)
    return KINDS[fields.pop("fact")](**fields)
