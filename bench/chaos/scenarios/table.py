"""Procedures P8 and P10 to P16."""

from typing import Final

from bench.chaos.verdict import Procedure

PROCEDURES: Final[tuple[Procedure, ...]] = ()
