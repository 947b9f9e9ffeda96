"""From verdicts to a table, a summary in JSON, and what to do about a failure. Pure."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from bench.chaos.judge import spread
from bench.chaos.spec import Spec
from bench.chaos.verdict import Control, Verdict

COLUMNS: Final = ("", "seed", "inputs", "kills", "lost", "double", "order", "reruns", "allowed", "takeover p50/max", "seconds", "")
SENTENCES_SHOWN: Final = 5


def row(verdict: Verdict) -> Sequence[Any]:
    """A line of the table."""
    figures = verdict.figures
    takeover = spread(figures.get("takeovers_s") or figures.get("production_takeovers_s", []))
    return (
        verdict.procedure,
        verdict.seed,
        figures.get("inputs", 0),
        figures.get("kills", 0),
        lost(verdict),
        figures.get("double_effects", 0),
        len(verdict.broken.get("I6", [])),
        figures.get("reruns", 0),
        figures.get("reruns_allowed", 0),
        f"{takeover['p50']:.1f}/{takeover['max']:.1f}" if takeover["max"] else "-",
        round(figures.get("seconds", 0)),
        "holds" if verdict.holds else f"BROKEN {' '.join(sorted(verdict.broken))}",
    )


def lost(verdict: Verdict) -> int:
    """Inputs that came to no end that is known."""
    return len(verdict.broken.get("I1", []))


def has_failed(control: Control, verdict: Verdict) -> bool:
    """Whether a control broke what it must break, and did so by running."""
    return not verdict.broken.get("vacuous") and any(verdict.broken.get(name) for name in control.must_break)


def sentences(verdict: Verdict) -> list[str]:
    """The first few sentences about each invariant that broke."""
    found: list[str] = []
    for name, broken in sorted(verdict.broken.items()):
        found += [f"  {name}: {sentence}" for sentence in broken[:SENTENCES_SHOWN]]
        if len(broken) > SENTENCES_SHOWN:
            found.append(f"  {name}: and {len(broken) - SENTENCES_SHOWN} more")
    return found


def summary(verdicts: Sequence[Verdict], controls: Sequence[tuple[Control, Verdict]]) -> dict[str, Any]:
    """Everything in one object. Times are in seconds; inputs, kills and the rest count over all runs of ours."""

    def total(name: str) -> int:
        return sum(verdict.figures.get(name, 0) for verdict in verdicts)

    def all_of(name: str) -> list[float]:
        return [value for verdict in verdicts for value in verdict.figures.get(name, [])]

    disturbances: Counter[str] = Counter()
    for verdict in verdicts:
        disturbances.update(verdict.figures.get("disturbances", {}))
    return {
        "inputs": total("inputs"),
        "kills": total("kills"),
        "kills_at_work": total("kills_at_work"),
        "lost": sum(lost(verdict) for verdict in verdicts),
        "double_effects": total("double_effects"),
        "order_violations": sum(len(verdict.broken.get("I6", [])) for verdict in verdicts),
        "reruns": total("reruns"),
        "reruns_allowed": total("reruns_allowed"),
        "repeated_executions": total("repeated_executions"),
        "in_doubt": total("in_doubt"),
        "dead": total("dead"),
        "model_calls": total("model_calls"),
        "model_calls_refused": total("model_calls_refused"),
        "model_calls_most": [value for verdict in verdicts if (value := verdict.figures.get("model_calls_most"))],
        "controls": len(controls),
        "controls_failed": sum(has_failed(control, verdict) for control, verdict in controls),
        "seeds": sorted({verdict.seed for verdict in verdicts}),
        "disturbances": dict(sorted(disturbances.items())),
        "takeover_s": spread(all_of("takeovers_s")),
        "takeover_production_s": spread(all_of("production_takeovers_s")),
        "drain_s": spread(all_of("drains_s")),
        "rebalance_dwell_s": spread(all_of("dwells_s")),
        "commits_sampled": total("commits_sampled"),
        "cpu_us_per_input": _mean(verdicts, "cpu_us_per_input"),
        "rss_mb": round(max((verdict.figures.get("rss_mb", 0.0) for verdict in verdicts), default=0.0)),
        "session_timeout_s": Spec.model_fields["session_timeout_s"].default,
        "lease_s": Spec.model_fields["lease_s"].default,
        "held": [f"{one.procedure}:{one.seed}" for one in verdicts if one.holds],
        "broken": [f"{one.procedure}:{one.seed}" for one in verdicts if not one.holds],
    }


def _mean(verdicts: Sequence[Verdict], name: str) -> int:
    weighted = sum(verdict.figures.get(name, 0.0) * verdict.figures.get("inputs", 0) for verdict in verdicts)
    return round(weighted / max(sum(verdict.figures.get("inputs", 0) for verdict in verdicts), 1))
