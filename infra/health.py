"""Health is progress: what a group member could move now, and since when it has not moved it. Pure.

A process that answers may still be wedged, and one that is silent may have nothing to do, or a long handler to wait for. So
liveness asks for each stage of the work whether something waits that could move, and whether anything moved since.
Source: DESIGN section 3; the wedged consumer that was healthy for 14 days (dydxprotocol/v4-chain#3367).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

# Longer than this without an observation means that we did not run ourselves (suspended, stopped): nothing is known of that time.
LONGEST_GAP_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of the work. `waiting` is how much could move now; `mark` is another one whenever something moved."""

    name: str
    waiting: int
    mark: int
    bound_s: float


@dataclass(frozen=True, slots=True)
class MemberState:
    """One group member at one moment. `outage` says what is down, in a sentence that quotes nobody."""

    group: str
    has_joined: bool
    is_draining: bool
    outage: str | None
    stages: tuple[Stage, ...] = ()


@dataclass(frozen=True, slots=True)
class _Standstill:
    mark: int
    since_s: float
    bound_s: float


@dataclass(frozen=True, slots=True)
class Watch:
    """What was seen of one member so far."""

    at_s: float | None = None
    standing: Mapping[str, _Standstill] = field(default_factory=dict[str, _Standstill])


def observe(watch: Watch, state: MemberState, now_s: float) -> Watch:
    """Look once more. A standstill begins when waiting work is first seen, and ends when its mark changes or nothing waits."""
    gap = watch.at_s is not None and now_s - watch.at_s > LONGEST_GAP_S
    known: Mapping[str, _Standstill] = {} if gap else watch.standing
    standing: dict[str, _Standstill] = {}
    for stage in state.stages:
        before = known.get(stage.name)
        if stage.waiting:
            since_s = before.since_s if before is not None and before.mark == stage.mark else now_s
            standing[stage.name] = _Standstill(stage.mark, since_s, stage.bound_s)
    return Watch(now_s, standing)


def stalled(watch: Watch, now_s: float) -> list[str]:
    """Names of the stages where work waited without moving for longer than the bound, as of the last look."""
    return [name for name, one in watch.standing.items() if now_s - one.since_s > one.bound_s]


def unready(states: Sequence[MemberState], down: Mapping[str, str]) -> list[str]:
    """Why this process should be given no work: a sentence each. Nothing means that it is ready.

    Args:
        down: dependency -> why it cannot serve.
    """
    reasons = [f"{name}: {why}" for name, why in sorted(down.items())]
    for state in states:
        if state.is_draining:
            reasons.append(f"{state.group}: draining")
        elif not state.has_joined:
            reasons.append(f"{state.group}: no assignment yet")
        elif state.outage is not None:
            reasons.append(f"{state.group}: {state.outage}")
    return reasons
