"""Procedures P8 and P10 to P16."""

from typing import Final

from bench.chaos.scenarios.poison import poison
from bench.chaos.verdict import Procedure

PROCEDURES: Final[tuple[Procedure, ...]] = (Procedure("P10", "poison of every kind", poison, short=True),)
