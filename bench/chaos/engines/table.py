"""The controls: which engine, disturbed how, must break what."""

from functools import partial
from typing import Final

from bench.chaos.engines import runs
from bench.chaos.scenarios.letterless import letterless
from bench.chaos.scenarios.limits import asked_in_a_burst
from bench.chaos.verdict import Control, Procedure

BURST: Final = Procedure("P1", "killed twice in a burst", runs.killed_in_a_burst)
# For engines that handle one record at a time, or lose most of them.
SHORT_BURST: Final = Procedure("P1", BURST.title, partial(runs.killed_in_a_burst, inputs=60, longest_ms=300, fails=0.3))
EFFECTS: Final = Procedure("P1", "killed among effects that cannot be repeated", runs.killed_among_effects)
ZOMBIE: Final = Procedure("P2", "a zombie wakes when others hold its threads", runs.woken_zombie)
LETTERLESS: Final = Procedure("P11", "the topic of dead letters is missing", letterless)
LIMIT: Final = Procedure("P5-limit", "everything is asked at once", asked_in_a_burst)
POISON: Final = Procedure("P10", "a record that always fails in each partition", runs.poisoned)

CONTROLS: Final[tuple[Control, ...]] = (
    Control("commit_fetched", BURST, ("I1",)),
    Control("no_claim", BURST, ("I3",)),
    Control("no_effect_record", EFFECTS, ("I2",)),
    Control("no_fence", ZOMBIE, ("I7",)),
    Control("dead_letter_not_awaited", LETTERLESS, ("I1", "I13")),
    Control("no_limiter", LIMIT, ("I16",)),
    Control("faststream_ack", SHORT_BURST, ("I1",)),
    Control("faststream_nack", POISON, ("I1", "I10")),
    Control("faststream_concurrent", SHORT_BURST, ("I1", "I6")),
)
