"""Procedures P8 and P10 to P16, and P5 for the limit of the model."""

from typing import Final

from bench.chaos.scenarios.crash_loop import crash_loop
from bench.chaos.scenarios.fairness import hot_and_noisy
from bench.chaos.scenarios.letterless import letterless
from bench.chaos.scenarios.limits import killed_at_the_limit
from bench.chaos.scenarios.outages import outage_and_storm
from bench.chaos.scenarios.poison import poison
from bench.chaos.scenarios.positions import positions
from bench.chaos.scenarios.replays import replays
from bench.chaos.scenarios.stuck import stuck_record
from bench.chaos.verdict import Procedure

PROCEDURES: Final[tuple[Procedure, ...]] = (
    Procedure("P5-limit", "workers and Redis killed at the limit of the model", killed_at_the_limit, short=True),
    Procedure("P8", "one record is stuck", stuck_record),
    Procedure("P10", "poison of every kind", poison, short=True),
    Procedure("P11", "no dead letter can be written", letterless, short=True),
    Procedure("P12", "positions lost, out of range, of another topic; partitions added", positions),
    Procedure("P13", "the outside world is out, then busy", outage_and_storm),
    Procedure("P14", "a record that kills its process", crash_loop),
    Procedure("P15", "replays: cut off, doubled, again, in vain", replays, short=True),
    Procedure("P16", "a hot key and a noisy tenant", hot_and_noisy),
)
