"""All schedules of a few workers, one after the other: a depth-first search that runs each schedule anew from the beginning.

A schedule is who goes on at each step. Of all of them those are run that take the turn from somebody who could go on at most
`preemptions` times; whoever waits for a lease gives the turn away, and that does not count. With `crashes` each of these schedules
is run once more for every step of it, at which whoever takes it dies.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

Choices = tuple[str, ...]


@dataclass
class Chooser:
    """Chooses by a prefix, and then lets whoever goes on go on. Stands in for `random.Random` in a `Stage`."""

    prefix: Choices = ()
    chosen: list[str] = field(default_factory=list)
    could: list[Choices] = field(default_factory=list)
    gave_way: str = ""

    def choice(self, names: Sequence[str]) -> str:
        # Somebody who has just looked in vain sees nothing else before another has moved.
        able = tuple(name for name in names if name != self.gave_way) or tuple(names)
        self.gave_way = ""
        number, last = len(self.chosen), self.chosen[-1] if self.chosen else ""
        if number < len(self.prefix):
            name = self.prefix[number]
            assert name in able, f"step {number}: {name} cannot go on, and could when this schedule was found"
        else:
            name = last if last in able else able[0]
        self.chosen.append(name)
        self.could.append(able)
        return name

    def preemptions(self, upto: int) -> int:
        """How often the turn was taken away before this step."""
        return sum(self._takes_away(number, self.chosen[number]) for number in range(1, upto))

    def _takes_away(self, number: int, name: str) -> bool:
        last = self.chosen[number - 1]
        return name != last and last in self.could[number]

    def others(self, *, preemptions: int) -> Iterator[Choices]:
        """Prefixes that nobody has run yet: this schedule up to a step behind its prefix, and there another choice."""
        for number in range(len(self.prefix), len(self.chosen)):
            before = self.preemptions(number)
            for name in self.could[number]:
                more = number > 0 and self._takes_away(number, name)
                if name != self.chosen[number] and before + more <= preemptions:
                    yield (*self.chosen[:number], name)


@dataclass
class Explored:
    """How many runs there were, and the steps of the longest."""

    schedules: int = 0
    runs: int = 0
    longest: int = 0


Run = Callable[[Chooser, int], Awaitable[None]]


async def explore(run: Run, *, preemptions: int, crashes: bool = False) -> Explored:
    """Run every schedule within the bound, and with a death at each of its steps.

    Args:
        run: Plays one schedule with a death at a step, or none for 0, and raises when something is wrong with its end.
    """
    found, open_ = Explored(), [()]
    while open_:
        chooser = Chooser(open_.pop())
        await _one(run, chooser, 0)
        found.schedules += 1
        found.runs += 1
        found.longest = max(found.longest, len(chooser.chosen))
        open_ += chooser.others(preemptions=preemptions)
        if crashes:
            for step in range(1, len(chooser.chosen) + 1):
                # The same way up to the death; behind it the dead one's record comes again, and others go on as they can.
                await _one(run, Chooser(tuple(chooser.chosen[:step])), step)
                found.runs += 1
    return found


async def _one(run: Run, chooser: Chooser, crash_at: int) -> None:
    try:
        await run(chooser, crash_at)
    except BaseException as error:
        error.add_note(f"schedule {list(chooser.chosen)}, a death at step {crash_at}")
        raise
