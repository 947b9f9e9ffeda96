"""The controls: which engine, disturbed how, must break what."""

from typing import Final

from bench.chaos.verdict import Control

CONTROLS: Final[tuple[Control, ...]] = ()
