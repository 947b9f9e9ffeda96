"""The one table of what the conductor can run."""

from typing import Final

from bench.chaos import networks, processes
from bench.chaos.engines import table as engines
from bench.chaos.scenarios import table as scenarios
from bench.chaos.verdict import Control, Procedure


def place(procedure: Procedure) -> tuple[int, str]:
    """P1 before P1-production before P2 before P10."""
    number = procedure.name.removeprefix("P").partition("-")[0]
    return int(number), procedure.name


ALL: Final = (*processes.PROCEDURES, *networks.PROCEDURES, *scenarios.PROCEDURES)
PROCEDURES: Final[dict[str, Procedure]] = {one.name: one for one in sorted(ALL, key=place)}
CONTROLS: Final[tuple[Control, ...]] = engines.CONTROLS
