"""What a procedure is, what it finds, and what a control is. Other modules register theirs in tables of these."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.chaos.world import World


@dataclass(slots=True)
class Verdict:
    """How one run went. `broken` has a list of sentences for each invariant that did not hold; `figures` are for the report."""

    procedure: str
    engine: str
    seed: int
    broken: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    figures: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def holds(self) -> bool:
        """Whether everything held."""
        return not any(self.broken.values())

    def add(self, invariant: str, sentences: list[str]) -> None:
        """What broke an invariant, beside what is known already. No sentence is fine."""
        if sentences:
            self.broken.setdefault(invariant, []).extend(sentences)


@dataclass(frozen=True, slots=True)
class Procedure:
    """A named disturbance. `run` gets a world of its own, with its topics made and no worker started, and judges it itself."""

    name: str
    title: str
    run: "Callable[[World, int], Awaitable[Verdict]]"
    short: bool = False


@dataclass(frozen=True, slots=True)
class Control:
    """An engine that lacks a guard, a procedure, and the invariants of which at least one must be seen to break."""

    engine: str
    procedure: Procedure
    must_break: tuple[str, ...]
