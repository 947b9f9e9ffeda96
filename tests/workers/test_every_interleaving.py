"""Every schedule, within a bound, of a message, a decision, the end of the time and a death on one thread. P1, P2, P3, case 18.

The bound: each actor has one record; every call of a port, every checkpoint, publication and commit is a step. Here any two
actors meet under one rule each, with the turn taken away once, and with one death at any step where it is never taken away.
Further than that goes `python -m tests.workers.test_every_interleaving`: with `--pairs` any two under every rule, and without it
all three by every rule, decision and end; `--preemptions 2 --crashes` for more of each.
"""

import argparse
import asyncio
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest

from tests.fakes.approvals import MemoryApprovalRegistry
from tests.fakes.ledger import CrashError
from tests.workers.exploring import Chooser, Explored, explore
from tests.workers.interleaving import NOW, Partition, Process, Stage, Stepped
from tests.workers.test_interleavings import Meeting
from topics.approval_state import ApprovalState
from topics.envelope import Event
from topics.errors import RetryableError
from topics.events import ApprovalAccepted, ApprovalExpired, ApprovalWithdrawn


@dataclass
class Once(Stepped):
    """A step before each call is enough: what is behind it is before the next."""

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            await self.stage.step()
            return await method(*args, **kwargs)

        return call


class Meet(Meeting):
    """q1 waits for a yes; q2 comes, kim decides, and the time is over."""

    def __init__(self, chooser: Chooser, crash_at: int, *, rule: Any, decision: str, at_expiry: Any, actors: set[str]) -> None:
        super().__init__(0, rule=rule, at_expiry=at_expiry, decision=decision, crash=False)
        self.chooser = chooser
        self.stage.rng = chooser
        self.stage.crash_at = crash_at
        self.actors = actors
        self.questions = self.questions[:1]
        self.desk.registry = Once(self.desk.registry.inner, self.stage)
        self.desk.held = Once(self.desk.held.inner, self.stage)

    async def _all(self, name: str, records: list[Any]) -> None:
        partition = Settling(name, self.stage, self.desk, self.told)
        for record in records:
            await partition.deliver(record)


class Settling(Partition):
    """A partition whose commit is a step too: who dies before it gets the record again."""

    async def deliver(self, one: Event[Any]) -> None:
        while True:
            process = Process(self.name)
            NOW.set(process)
            try:
                await self._handle(one, process)
                await self.stage.step()
            except (CrashError, BaseExceptionGroup):
                if not process.is_dead:
                    raise
            except RetryableError:
                self.stage.rng.gave_way = self.name
                with suppress(CrashError):
                    await self.stage.step()
            else:
                return


class Racy(MemoryApprovalRegistry):
    """Its compare-and-set compares, lets others go on, and sets."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self.stage = stage

    async def store(self, state: ApprovalState) -> bool:
        known = await self.find(state.tenant, state.request.approval_id)
        if known is None or known.revision != state.revision - 1:
            return False
        await self.stage.step()
        self._keep(state)
        return True


RULES = ("hold", "cancel", "revise")
DECISIONS = ("approve", "reject", "respond")
ENDS = ("reject", "cancel")
ALL = frozenset({"queries", "decisions", "timers"})
PAIRS = [(rule, ALL - {absent}) for rule in RULES for absent in ("timers", "decisions")] + [("hold", ALL - {"queries"})]
# Each two actors once and each rule once: about a third of the pairs, and of their time.
IN_THE_SUITE = [("cancel", ALL - {"timers"}), ("revise", ALL - {"decisions"}), ("hold", ALL - {"queries"})]
WINNERS = {"queries": ApprovalWithdrawn, "decisions": ApprovalAccepted, "timers": ApprovalExpired}


@dataclass
class Search:
    """What is searched, and who won in it."""

    rule: str
    decision: str = "approve"
    at_expiry: str = "reject"
    actors: frozenset[str] = ALL
    racy: bool = False
    winners: set[type] = field(default_factory=set)
    crashed: int = 0

    async def through(self, *, preemptions: int, crashes: bool = False) -> Explored:
        return await explore(self.play, preemptions=preemptions, crashes=crashes)

    async def play(self, chooser: Chooser, crash_at: int) -> None:
        meeting = Meet(chooser, crash_at, rule=self.rule, decision=self.decision, at_expiry=self.at_expiry, actors=set(self.actors))
        if self.racy:
            meeting.desk.registry = Once(Racy(meeting.stage), meeting.stage)
        await meeting.hold()
        await meeting.check()
        self.crashed += meeting.stage.crashed
        told = [one for one in meeting.desk.told if getattr(one, "approval_id", "") == meeting.first.approval_id]
        self.winners |= {kind for kind in WINNERS.values() if any(isinstance(one, kind) for one in told)}

    def can_win(self) -> set[type]:
        """A message that is held wins nothing."""
        return {kind for name, kind in WINNERS.items() if name in self.actors and (name, self.rule) != ("queries", "hold")}


@pytest.mark.parametrize(("rule", "actors"), IN_THE_SUITE)
async def test_whoever_takes_the_turn_from_whom_there_is_one_outcome(rule: str, actors: frozenset[str]):
    search = Search(rule, actors=actors)
    found = await search.through(preemptions=1)
    assert found.schedules >= 20, "wherever both could go on the turn is taken away"
    assert search.winners == search.can_win(), "a search in which one of them never wins shows nothing"


@pytest.mark.parametrize(("rule", "actors"), IN_THE_SUITE)
async def test_wherever_a_worker_dies_there_is_one_outcome(rule: str, actors: frozenset[str]):
    search = Search(rule, actors=actors)
    found = await search.through(preemptions=0, crashes=True)
    assert search.crashed == found.runs - found.schedules > found.longest


async def test_a_compare_and_set_that_lets_others_in_between_is_found_out():
    """The negative control: two of them believe that they were first."""
    search = Search("hold", actors=ALL - {"queries"}, racy=True)
    with pytest.raises(AssertionError):
        await search.through(preemptions=1)


async def test_a_search_goes_through_every_order_of_steps():
    """Against counting: two actors with two steps each have six orders, and four where the turn is taken away at most once."""

    async def orders(preemptions: int) -> set[tuple[str, ...]]:
        seen = set()

        async def play(chooser: Chooser, _: int) -> None:
            left = {"a": 2, "b": 2}
            while names := sorted(name for name, steps in left.items() if steps):
                left[chooser.choice(names)] -= 1
            assert tuple(chooser.chosen) not in seen, "no schedule is run twice"
            seen.add(tuple(chooser.chosen))

        await explore(play, preemptions=preemptions)
        return seen

    assert [len(await orders(preemptions)) for preemptions in range(4)] == [2, 4, 6, 6]


async def go_further(*, preemptions: int, crashes: bool, pairs: bool) -> None:
    """Search any two actors by every rule, or all three by every rule, decision and end."""
    everyone = [Search(*one) for one in product(RULES, DECISIONS, ENDS)]
    for search in [Search(rule, actors=actors) for rule, actors in PAIRS] if pairs else everyone:
        found = await search.through(preemptions=preemptions, crashes=crashes)
        assert search.winners >= search.can_win(), "a search in which one of them never wins shows nothing"
        sys.stdout.write(f"{search.rule}, {search.decision}, at the end {search.at_expiry}, {sorted(search.actors)}: {found}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preemptions", type=int, default=1)
    parser.add_argument("--crashes", action="store_true", help="a death at every step of each schedule too")
    parser.add_argument("--pairs", action="store_true", help="any two of them under every rule")
    asyncio.run(go_further(**vars(parser.parse_args())))
