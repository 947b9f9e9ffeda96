"""From the account of a run to its verdict and its figures. Pure."""

import statistics
from collections import Counter
from typing import Any

from bench.chaos.account import Account
from bench.chaos.facts import Disturbed, Left, Performed, Revoked, Sampled, Started
from bench.chaos.invariants import INVARIANTS, NS, Bounds, kills
from bench.chaos.verdict import Verdict


def judge(account: Account, verdict: Verdict, bounds: Bounds, *invariants: str) -> Verdict:
    """Hold a run against the invariants that are named, all of them when none is; add its figures."""
    for name in invariants or INVARIANTS:
        verdict.add(name, INVARIANTS[name](account, bounds))
    # An engine that never ran loses everything, too.
    verdict.add("vacuous", [] if any(run.is_good for run in account.runs) else ["no handler ended well: the engine did not run"])
    verdict.figures |= figures(account)
    return verdict


def figures(account: Account) -> dict[str, Any]:
    """What a run came to. Times are in seconds."""
    killed = kills(account)
    applied = Counter(one.event_id for one in account.of(Performed) if one.applied)
    takeovers = [one.takeover_s for one in killed if one.takeover_s is not None]
    events = Counter(run.start.event_id for run in account.runs)
    return {
        "inputs": len(account.inputs),
        "kills": len(killed),
        "kills_at_work": sum(1 for one in killed if one.in_flight),
        "disturbances": dict(Counter(one.kind for one in account.of(Disturbed) if not one.ends)),
        "handler_starts": len(account.of(Started)),
        "repeated_executions": sum(count - 1 for count in events.values()),
        "effects": sum(applied.values()),
        "double_effects": sum(count - 1 for count in applied.values()),
        "in_doubt": sum(1 for outcomes in account.answers.values() if "in_doubt" in outcomes),
        "dead": len(account.dead),
        "reruns": sum(len(one.reruns) for one in killed),
        "reruns_allowed": sum(len(one.in_flight) for one in killed),
        "takeovers_s": takeovers,
        "drains_s": [one.seconds for one in account.of(Left)],
        "dwells_s": [one.dwell_s for one in account.of(Revoked)],
        "rss_mb": max((one.rss_mb for one in account.of(Sampled)), default=0.0),
        "cpu_us_per_input": _cpu_us(account),
        "seconds": (account.facts[-1].at_ns - account.facts[0].at_ns) / NS if account.facts else 0.0,
    }


def _cpu_us(account: Account) -> float:
    used: dict[str, float] = {}
    for one in account.of(Sampled):
        used[one.who] = max(one.cpu_s, used.get(one.who, 0.0))
    return sum(used.values()) * 1e6 / max(len(account.inputs), 1)


def spread(values: list[float]) -> dict[str, float]:
    """Median, 95th percentile and maximum of some seconds."""
    if len(values) < 2:
        only = round(max(values, default=0.0), 2)
        return {"p50": only, "p95": only, "max": only}
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return {"p50": round(cuts[49], 2), "p95": round(cuts[94], 2), "max": round(max(values), 2)}
