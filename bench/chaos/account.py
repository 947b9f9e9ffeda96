"""The facts of one run, indexed: what the invariants ask. Pure."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeVar, cast

from bench.chaos.facts import Answered, Buried, Claimed, Disturbed, Ended, Fact, Granted, Published, Settled, Started

GOOD: Final = ("done", "in_doubt")

F = TypeVar("F", bound=Fact)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a handler: its start, and its end if it came to one."""

    start: Started
    end: Ended | None

    @property
    def is_good(self) -> bool:
        """Whether it ended and needs no other try."""
        return self.end is not None and self.end.outcome in GOOD

    @property
    def has_failed(self) -> bool:
        """Whether it ended and its record must run again."""
        return self.end is not None and self.end.outcome not in GOOD


class Account:
    """All facts in the order of time, and indexes over them that are built when they are asked for."""

    def __init__(self, facts: Iterable[Fact]) -> None:
        self.facts = sorted(facts, key=lambda fact: fact.at_ns)
        self._by_kind: dict[type[Fact], list[Fact]] = defaultdict(list)
        for fact in self.facts:
            self._by_kind[type(fact)].append(fact)

    def of(self, kind: type[F]) -> list[F]:
        """The facts of one kind, by time."""
        return cast("list[F]", self._by_kind[kind])

    @cached_property
    def inputs(self) -> dict[str, Published]:
        """Event id -> where it was first published."""
        return {one.event_id: one for one in reversed(self.of(Published))}

    @cached_property
    def runs(self) -> list[Run]:
        """Every run of a handler, by its start. One incarnation runs one record once at a time."""
        going: dict[tuple[str, str, int], Started] = {}
        runs: list[Run] = []
        for fact in self.facts:
            if isinstance(fact, Started):
                going[fact.who, fact.partition, fact.offset] = fact
            elif isinstance(fact, Ended) and (start := going.pop((fact.who, fact.partition, fact.offset), None)):
                runs.append(Run(start, fact))
        runs += [Run(start, None) for start in going.values()]
        return sorted(runs, key=lambda run: run.start.at_ns)

    @cached_property
    def runs_by_event(self) -> dict[str, list[Run]]:
        """Event id -> its runs, by their start."""
        found: dict[str, list[Run]] = defaultdict(list)
        for run in self.runs:
            found[run.start.event_id].append(run)
        return found

    @cached_property
    def settled_ns(self) -> dict[str, int]:
        """Event id -> when it was told to be settled; with an engine that settles nothing, when its handler first ended well."""
        settled: dict[str, int] = {}
        for one in self.of(Settled):
            settled.setdefault(one.claim_id, one.at_ns)
        if not settled:
            return self._well_ended(self.runs)
        return {event_id: settled[one.claim_id] for event_id, one in self.inputs.items() if one.claim_id in settled}

    @cached_property
    def finished_ns(self) -> dict[str, int]:
        """Event id -> when it was settled, at the earliest.

        A worker that was killed or frozen may have settled what it could not tell, or told late: what it handled well counts from
        there, and what it gave up without a handler, as after too many deaths, from its last claim.
        """
        mute = {one.target for one in self.of(Disturbed) if one.kind in {"kill", "died", "freeze"}}
        untold = self._well_ended([run for run in self.runs if run.start.who in mute])
        for event_id in self.dead - self.settled_ns.keys() - untold.keys():
            if moments := [moment for who in mute for moment in self.claims.get((who, self.inputs[event_id].claim_id), [])]:
                untold[event_id] = max(moments)
        return {**self.settled_ns, **{one: min(at_ns, self.settled_ns.get(one, at_ns)) for one, at_ns in untold.items()}}

    def _well_ended(self, runs: Iterable[Run]) -> dict[str, int]:
        ended: dict[str, int] = {}
        for run in runs:
            if run.is_good and run.end:
                ended[run.start.event_id] = min(run.end.at_ns, ended.get(run.start.event_id, run.end.at_ns))
        return ended

    @cached_property
    def claims(self) -> dict[tuple[str, str], list[int]]:
        """(incarnation, claim id) -> when the incarnation set out to start that record."""
        found: dict[tuple[str, str], list[int]] = defaultdict(list)
        for one in self.of(Claimed):
            for claim_id in one.claim_ids:
                found[one.who, claim_id].append(one.at_ns)
        return found

    def claimed_ns(self, start: Started) -> int:
        """When a start was claimed; with an engine that claims nothing, when it began."""
        published = self.inputs.get(start.event_id)
        moments = self.claims.get((start.who, published.claim_id), []) if published else []
        return max((moment for moment in moments if moment <= start.at_ns), default=start.at_ns)

    @cached_property
    def grants(self) -> dict[str, list[Granted]]:
        """Event id -> who was granted its key for it."""
        found: dict[str, list[Granted]] = defaultdict(list)
        for one in self.of(Granted):
            found[one.event_id].append(one)
        return found

    def taken_ns(self, event_id: str, who: str, after_ns: int) -> int | None:
        """When somebody else had an event's key in hand: a start alone may only find that the key is still leased."""
        return next((one.at_ns for one in self.grants[event_id] if one.who != who and one.at_ns > after_ns), None)

    @cached_property
    def answers(self) -> dict[str, set[str]]:
        """Event id -> the outcomes that were published for it."""
        found: dict[str, set[str]] = defaultdict(set)
        for one in self.of(Answered):
            found[one.event_id].add(one.outcome)
        return found

    @cached_property
    def dead(self) -> set[str]:
        """Events that have a dead letter."""
        places = {(one.partition, one.offset) for one in self.of(Buried)}
        return {one.event_id for one in self.of(Published) if (one.partition, one.offset) in places}

    def in_flight(self, who: str, at_ns: int) -> set[str]:
        """Events that an incarnation had started by then and that were neither settled nor waiting for another try."""
        latest = {run.start.event_id: run for run in self.runs if run.start.who == who and run.start.at_ns <= at_ns}
        waits = {event_id for event_id, run in latest.items() if run.has_failed and run.end and run.end.at_ns <= at_ns}
        return {one for one in latest if self.settled_ns.get(one, at_ns + 1) > at_ns} - waits
