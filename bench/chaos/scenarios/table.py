"""Procedures P8 and P10 to P16."""

from typing import Final

from bench.chaos.scenarios.letterless import letterless
from bench.chaos.scenarios.poison import poison
from bench.chaos.scenarios.replays import replays
from bench.chaos.verdict import Procedure

PROCEDURES: Final[tuple[Procedure, ...]] = (
    Procedure("P10", "poison of every kind", poison, short=True),
    Procedure("P11", "no dead letter can be written", letterless, short=True),
    Procedure("P15", "replays: cut off, doubled, again, in vain", replays, short=True),
)
