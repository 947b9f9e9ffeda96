"""What the conductor knows of a run while it goes on, fact by fact."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from bench.chaos.account import GOOD
from bench.chaos.facts import Assigned, Committed, Ended, Fact, Published, Settled, Started


@dataclass(slots=True)
class Live:
    """Events that are published, running (by incarnation) and finished; positions by partition; when something last moved."""

    published: dict[str, str] = field(default_factory=dict[str, str])
    finished: set[str] = field(default_factory=set[str])
    running: dict[str, set[str]] = field(default_factory=lambda: defaultdict[str, set[str]](set))
    positions: dict[str, int] = field(default_factory=dict[str, int])
    holders: set[str] = field(default_factory=set[str])
    moved_ns: int = 0
    _claims: set[str] = field(default_factory=set[str])

    @property
    def unfinished(self) -> int:
        """Published inputs that are not finished."""
        return sum(
            1 for event_id, claim_id in self.published.items() if not (event_id in self.finished or claim_id in self._claims)
        )

    def feed(self, facts: Iterable[Fact]) -> None:
        """Take note of news."""
        for fact in facts:
            self.moved_ns = max(self.moved_ns, fact.at_ns if not isinstance(fact, Committed) else 0)
            match fact:
                case Published():
                    self.published[fact.event_id] = fact.claim_id
                case Started():
                    self.running[fact.who].add(fact.event_id)
                case Ended():
                    self.running[fact.who].discard(fact.event_id)
                    if fact.outcome in GOOD:
                        self.finished.add(fact.event_id)
                case Settled():
                    self._claims.add(fact.claim_id)
                case Committed():
                    self.positions[fact.partition] = fact.position
                case Assigned():
                    self.holders.add(fact.who)
                case _:
                    pass
