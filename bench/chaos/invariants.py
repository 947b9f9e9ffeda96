"""The invariants, each a pure function from the account of a run to sentences about what broke it; none means that it held.

I12 to I16 belong to single procedures, which judge them themselves.
Source: `docs/decisions/0013-chaos.md`.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bench.chaos.account import Account, Run
from bench.chaos.facts import Assigned, Begun, Committed, Disturbed, Granted, Joined, Left, Performed, Published, Sampled

NS: Final = 1_000_000_000
POLL_MARGIN: Final = 500  # one answer of the broker may arrive whole


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a run allows. `answers` says whether the engine publishes an output for each input that is done."""

    slots: int = 16
    max_buffered: int = 128
    max_rss_mb: float = 400.0
    answers: bool = True
    frozen_s: float = 30.0
    drain_s: float = 20.0
    settle_s: float = 15.0  # after a disturbance, a group may still rebalance for so long


def no_loss(account: Account, bounds: Bounds) -> list[str]:
    """I1: every input is done, dead or in doubt, with evidence: its answer, its effect in the world's journal, its dead letter."""
    applied = Counter(one.event_id for one in account.of(Performed) if one.applied)
    broken: list[str] = []
    for event_id, one in account.inputs.items():
        answers = account.answers.get(event_id, set[str]())
        if event_id in account.dead:
            continue
        if bounds.answers and not answers:
            broken.append(f"{event_id} at {one.partition}/{one.offset} has no answer and no dead letter")
        elif "in_doubt" not in answers and one.effect != "none" and not applied[event_id]:
            broken.append(f"{event_id} at {one.partition}/{one.offset} was said to be done, but its effect never happened")
        elif not bounds.answers and event_id not in account.finished_ns:
            broken.append(f"{event_id} at {one.partition}/{one.offset} was never handled to its end")
    return broken


def effects_once(account: Account, bounds: Bounds) -> list[str]:
    """I2: the outside world did each thing at most once."""
    del bounds
    applied = Counter(one.event_id for one in account.of(Performed) if one.applied)
    return [f"the effect of {event_id} happened {count} times" for event_id, count in applied.items() if count > 1]


def reruns_in_flight(account: Account, bounds: Bounds) -> list[str]:
    """I3: what runs again was in flight when its worker died, or had failed: nothing that is settled starts again.

    A worker that froze between its claim and its handler goes on with it, settled or not; the effect's own record stops it there.
    """
    del bounds
    broken: list[str] = []
    for event_id, runs in account.runs_by_event.items():
        settled = account.settled_ns.get(event_id)
        if settled is None:
            continue
        late = [run for run in runs if account.claimed_ns(run.start) > settled]
        broken += [f"{event_id} ran again in {run.start.who} after it was settled" for run in late]
    for kill in kills(account):
        if len(kill.reruns) > len(kill.in_flight):
            broken.append(f"{kill.who}: {len(kill.reruns)} handlers ran again, {len(kill.in_flight)} were in flight")
    return broken


def commits_below_unfinished(account: Account, bounds: Bounds) -> list[str]:
    """I4: no position that the broker ever told was above a record that was unfinished when it answered."""
    del bounds
    unfinished: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for one in account.of(Published):
        unfinished[one.partition].append((one.offset, one.event_id))
    for records in unfinished.values():
        records.sort(reverse=True)
    broken: list[str] = []
    for sample in account.of(Committed):
        records = unfinished[sample.partition]
        while records and records[-1][0] < sample.position:
            offset, event_id = records.pop()
            if account.finished_ns.get(event_id, sample.at_ns + 1) > sample.at_ns:
                broken.append(f"{sample.partition} was committed to {sample.position} while {event_id} at {offset} was unfinished")
    return broken


def commits_never_go_back(account: Account, bounds: Bounds) -> list[str]:
    """I5: a committed position never gets smaller."""
    del bounds
    highest: dict[str, int] = {}
    broken: list[str] = []
    for sample in account.of(Committed):
        before = highest.get(sample.partition, 0)
        if sample.position < before:
            broken.append(f"{sample.partition} went back from {before} to {sample.position}")
        highest[sample.partition] = max(before, sample.position)
    return broken


def order_per_key(account: Account, bounds: Bounds) -> list[str]:
    """I6: handlers of a key run one after another in the order of offsets within an epoch, and its effects happen in that order.

    An effect that was given up as in doubt counts in no order: when it happened, nobody can say.
    """
    del bounds
    return _handlers_out_of_order(account) + _effects_out_of_order(account)


def _handlers_out_of_order(account: Account) -> list[str]:
    broken: list[str] = []
    last: dict[tuple[str, str, int, str], Run] = {}
    for run in account.runs:
        start = run.start
        before = last.get(lane := (start.who, start.partition, start.epoch, start.key))
        if before and start.offset < before.start.offset:
            broken.append(f"{start.key} in {start.who}: {start.offset} began after {before.start.offset}")
        if before and (before.end is None or before.end.at_ns > start.at_ns):
            broken.append(f"{start.key} in {start.who}: {start.offset} began before {before.start.offset} had ended")
        last[lane] = run
    return broken


def _effects_out_of_order(account: Account) -> list[str]:
    broken: list[str] = []
    highest: dict[tuple[str, str], int] = {}
    for one in account.of(Performed):
        published = account.inputs.get(one.event_id)
        if published is None or not one.applied or "in_doubt" in account.answers.get(one.event_id, set[str]()):
            continue
        lane = (published.partition, one.key)
        if published.offset < highest.get(lane, -1):
            broken.append(f"{one.key}: the effect of {published.offset} happened after that of {highest[lane]}")
        highest[lane] = max(published.offset, highest.get(lane, -1))
    return broken


def one_writer(account: Account, bounds: Bounds) -> list[str]:
    """I7: nobody begins an effect under a fence that had been overtaken before it asked."""
    del bounds
    granted: dict[str, list[Granted]] = defaultdict(list)
    for grant in account.of(Granted):
        granted[grant.key].append(grant)
    return [
        f"{one.key}: {one.who} began {one.event_id} under fence {one.fence}, after {later.who} had {later.fence}"
        for one in account.of(Begun)
        if one.state == "new"
        for later in [_overtaker(one, granted[one.key])]
        if later
    ]


def _overtaker(one: Begun, grants: Sequence[Granted]) -> Granted | None:
    return next((grant for grant in grants if grant.fence > one.fence and grant.at_ns < one.asked_at_ns), None)


def within_bounds(account: Account, bounds: Bounds) -> list[str]:
    """I8: slots, buffered records and memory stay within their bounds."""
    broken: set[str] = set()
    for one in account.of(Sampled):
        if one.running > bounds.slots:
            broken.add(f"{one.who} ran {one.running} at once, of {bounds.slots} slots")
        if one.buffered > bounds.max_buffered + POLL_MARGIN:
            broken.add(f"{one.who} held {one.buffered} records of a partition, of {bounds.max_buffered}")
        if one.rss_mb > bounds.max_rss_mb:
            broken.add(f"{one.who} held {one.rss_mb:.0f} MiB, of {bounds.max_rss_mb:.0f}")
    return sorted(broken)


def no_idle_rebalance(account: Account, bounds: Bounds) -> list[str]:
    """I9: a group rebalances only because somebody joined, left, or was disturbed a little before."""
    causes = sorted(
        [one.at_ns for one in account.of(Disturbed)]
        + [one.at_ns for one in account.of(Joined)]
        + [one.at_ns for one in account.of(Left)]
    )
    settle_ns = int(bounds.settle_s * NS)
    return [
        f"{one.who} was assigned anew without a cause"
        for one in account.of(Assigned)
        if not any(one.at_ns - settle_ns <= cause <= one.at_ns for cause in causes)
    ]


def progress(account: Account, bounds: Bounds) -> list[str]:
    """I10: no partition with unfinished records stands still for longer than its bound, disturbances not counted."""
    frozen_ns = int(bounds.frozen_s * NS)
    waiting: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for one in account.inputs.values():
        end = account.finished_ns.get(one.event_id, account.facts[-1].at_ns)
        waiting[one.partition].append((one.at_ns, end))
    broken: list[str] = []
    disturbances = [one.at_ns for one in account.of(Disturbed)]
    for partition, spans in waiting.items():
        for since, until in _still(spans):
            calm_since = max([since, *(at for at in disturbances if at < until)])
            if until - calm_since > frozen_ns:
                broken.append(f"{partition} stood still for {(until - calm_since) / NS:.0f} s")
    return broken


def _still(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans in which a partition had unfinished records and finished none."""
    still: list[tuple[int, int]] = []
    moments = sorted(end for _, end in spans)
    begins = sorted(begin for begin, _ in spans)
    before, published = begins[0], 0
    for number, moment in enumerate(moments):
        while published < len(begins) and begins[published] <= before:
            published += 1
        since = before if published > number else begins[number]
        still.append((max(since, before), moment))
        before = moment
    return still


def clean_drains(account: Account, bounds: Bounds) -> list[str]:
    """I11: who is asked to stop ends in time with exit code 0, and nothing of its work runs again."""
    broken: list[str] = []
    for one in account.of(Left):
        if one.code != 0:
            broken.append(f"{one.who} ended with {one.code}")
        if one.seconds > bounds.drain_s:
            broken.append(f"{one.who} took {one.seconds:.1f} s to drain, of {bounds.drain_s:g}")
        unfinished = [run for run in account.runs if run.start.who == one.who and run.end is None]
        broken += [f"{one.who} left {run.start.event_id} unfinished" for run in unfinished]
    return broken


@dataclass(frozen=True, slots=True)
class Kill:
    """A worker that was killed: what it had in flight, what of it ran again, and when the last of it was in hand again."""

    who: str
    at_ns: int
    in_flight: set[str]
    reruns: set[str]
    takeover_s: float | None


def kills(account: Account) -> list[Kill]:
    """SIGKILLs of workers, in the order of time."""
    return [_kill(account, one) for one in account.of(Disturbed) if one.kind == "kill"]


def _kill(account: Account, disturbed: Disturbed) -> Kill:
    who = disturbed.target
    in_flight = account.in_flight(who, disturbed.at_ns)
    touched = in_flight | {run.start.event_id for run in account.runs if run.start.who == who and run.is_good}
    reruns = {one for one in touched if _first_elsewhere(account.runs_by_event[one], who, disturbed.at_ns)}
    taken_ns = [at_ns for one in in_flight if (at_ns := account.taken_ns(one, who, disturbed.at_ns))]
    takeover_s = (max(taken_ns) - disturbed.at_ns) / NS if taken_ns else None
    return Kill(who, disturbed.at_ns, in_flight, reruns, takeover_s)


def _first_elsewhere(runs: Sequence[Run], who: str, at_ns: int) -> Run | None:
    return next((run for run in runs if run.start.at_ns > at_ns and run.start.who != who), None)


def not_vacuous(account: Account, *, min_kills: int, min_shared_keys: int) -> list[str]:
    """A run that disturbed nothing shows nothing: too few kills during work, or too few keys with several records, fail it."""
    at_work = sum(1 for kill in kills(account) if kill.in_flight)
    shared = sum(1 for count in Counter(one.key for one in account.of(Published)).values() if count > 2)
    broken: list[str] = []
    if at_work < min_kills:
        broken.append(f"only {at_work} kills hit a worker at work, {min_kills} are needed")
    if shared < min_shared_keys:
        broken.append(f"only {shared} keys have several records, {min_shared_keys} are needed")
    return broken


Invariant = Callable[[Account, Bounds], list[str]]

INVARIANTS: Final[dict[str, Invariant]] = {
    "I1": no_loss,
    "I2": effects_once,
    "I3": reruns_in_flight,
    "I4": commits_below_unfinished,
    "I5": commits_never_go_back,
    "I6": order_per_key,
    "I7": one_writer,
    "I8": within_bounds,
    "I9": no_idle_rebalance,
    "I10": progress,
    "I11": clean_drains,
}
