"""What is made of verdicts, and of facts while they come."""

from bench.chaos import report
from bench.chaos.invariants import Bounds
from bench.chaos.judge import figures, judge, spread
from bench.chaos.live import Live
from bench.chaos.verdict import Control, Procedure, Verdict
from bench.chaos.world import World
from tests.bench.chaos.histories import History


async def never(world: World, seed: int) -> Verdict:
    raise NotImplementedError  # never run: a row needs a procedure


PROCEDURE = Procedure("P1", "kills", never)


def test_the_figures_of_a_history_count_what_happened() -> None:
    history = History().publish(0, 1).start(0).disturb("kill").handle(0, "b").handle(1, "b").perform(1, "c")
    found = figures(history.account())
    expected = {"inputs": 2, "kills": 1, "kills_at_work": 1, "reruns": 1, "reruns_allowed": 1, "double_effects": 1}
    assert {name: found[name] for name in expected} == expected
    assert found["disturbances"] == {"kill": 1}
    assert found["repeated_executions"] == 1


def test_the_summary_adds_up_what_ours_did_and_counts_the_controls_that_broke() -> None:
    ours = [
        Verdict("P1", "ours", 1, figures={"inputs": 10, "kills": 2, "takeovers_s": [1.0]}),
        Verdict("P2", "ours", 2, broken={"I1": ["q1", "q2"], "I6": ["k"]}, figures={"inputs": 5}),
    ]
    blind, seeing = Control("blind", PROCEDURE, ("I1",)), Control("seeing", PROCEDURE, ("I1", "I2"))
    controls = [
        (blind, Verdict("P1", "blind", 1, broken={"I3": ["x"]})),
        (seeing, Verdict("P1", "seeing", 1, broken={"I2": ["x"]})),
    ]
    summary = report.summary(ours, controls)
    expected = {"inputs": 15, "kills": 2, "lost": 2, "order_violations": 1, "controls": 2, "controls_failed": 1, "seeds": [1, 2]}
    assert {name: summary[name] for name in expected} == expected
    assert (summary["held"], summary["broken"]) == (["P1:1"], ["P2:2"])


def test_a_failure_is_told_in_its_first_sentences() -> None:
    verdict = Verdict("P1", "ours", 1)
    verdict.add("I1", [f"q{number}" for number in range(8)])
    verdict.add("I2", [])
    assert not verdict.holds
    assert report.sentences(verdict) == ["  I1: q0", "  I1: q1", "  I1: q2", "  I1: q3", "  I1: q4", "  I1: and 3 more"]


def test_a_spread_of_few_values_is_their_largest() -> None:
    assert spread([]) == {"p50": 0, "p95": 0, "max": 0}
    assert spread([2.0]) == {"p50": 2.0, "p95": 2.0, "max": 2.0}
    assert spread([1.0, 2.0, 3.0])["p50"] == 2.0


def test_live_facts_tell_who_runs_what_and_what_is_left() -> None:
    live = Live()
    live.feed(History().publish(0, 1).start(0).facts)
    assert (live.unfinished, live.running["a"]) == (2, {"q0"})
    live.feed(History().end(0).settle(1, state="dead").commit(2).assign("a").facts)
    assert (live.unfinished, live.running["a"]) == (0, set())
    assert (live.positions, live.holders) == ({"t/0": 2}, {"a"})


def test_an_engine_that_never_ran_is_not_seen_to_break() -> None:
    """It loses everything; a control whose package is missing would pass."""
    control = Control("blind", PROCEDURE, ("I1",))
    died = judge(
        History().publish(*range(10)).disturb("died", "a").account(), Verdict("P1", "blind", 1), Bounds(answers=False), "I1"
    )
    ran = judge(History().publish(*range(10)).handle(0).account(), Verdict("P1", "blind", 1), Bounds(answers=False), "I1")
    assert died.broken["I1"]
    assert [report.has_failed(control, verdict) for verdict in (died, ran)] == [False, True]
