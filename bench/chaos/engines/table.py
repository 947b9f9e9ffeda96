"""The controls: which engine, disturbed how, must break what."""

from typing import Final

from bench.chaos.engines import runs
from bench.chaos.scenarios.letterless import letterless
from bench.chaos.verdict import Control, Procedure

BURST: Final = Procedure("P1", "killed twice in a burst", runs.killed_in_a_burst)
ZOMBIE: Final = Procedure("P2", "a zombie wakes when others hold its threads", runs.woken_zombie)
LETTERLESS: Final = Procedure("P11", "the topic of dead letters is missing", letterless)
POISON: Final = Procedure("P10", "a record that always fails in each partition", runs.poisoned)

CONTROLS: Final[tuple[Control, ...]] = (
    Control("commit_fetched", BURST, ("I1",)),
    Control("no_claim", BURST, ("I3",)),
    Control("no_fence", ZOMBIE, ("I7",)),
    Control("dead_letter_not_awaited", LETTERLESS, ("I1", "I13")),
    Control("faststream_ack", BURST, ("I1",)),
    Control("faststream_nack", POISON, ("I1", "I10")),
    Control("faststream_concurrent", BURST, ("I1", "I6")),
)
