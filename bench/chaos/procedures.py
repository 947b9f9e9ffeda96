"""The one table of what the conductor can run."""

from typing import Final

from bench.chaos import basics
from bench.chaos.engines import table as engines
from bench.chaos.scenarios import table as scenarios
from bench.chaos.verdict import Control, Procedure

PROCEDURES: Final[dict[str, Procedure]] = {one.name: one for one in (*basics.PROCEDURES, *scenarios.PROCEDURES)}
CONTROLS: Final[tuple[Control, ...]] = engines.CONTROLS
