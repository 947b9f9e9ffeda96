"""How well the calls that were made follow the right ones. Which tools, and with which arguments, are two questions."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from flows.evaluation.equality import alike
from flows.evaluation.tasks import Call, Mode


@dataclass(frozen=True, slots=True)
class Trajectory:
    """`tools` and `arguments` between 0 and 1. `pairs` holds each right call and the one that was made for it.

    `arguments` is over the pairs alone, so that a wrong tool is counted once.
    """

    tools: float
    arguments: float
    pairs: tuple[tuple[Call, Call], ...]
    missing: tuple[Call, ...]
    extra: tuple[Call, ...]

    @property
    def wrong_arguments(self) -> tuple[tuple[Call, Call], ...]:
        """The pairs whose arguments differ."""
        return tuple(pair for pair in self.pairs if not same_call(*pair))


def same_call(one: Call, other: Call) -> bool:
    """The same tool with the same arguments, numbers to the cent."""
    return one.tool == other.tool and alike(one.arguments, other.arguments)


def follow(expected: Sequence[Call], made: Sequence[Call], *, mode: Mode) -> Trajectory:
    """Compare calls.

    Args:
        mode: `strict`: these calls in this order and no other; `unordered`: these in any order and no other; `superset`: at
            least these, in any order.
    """
    places = _in_order(expected, made) if mode == "strict" else _in_any_order(expected, made)
    taken = {of_made for _, of_made in places}
    pairs = tuple((expected[left], made[right]) for left, right in places)
    found = {left for left, _ in places}
    wanted = len(expected) if mode == "superset" else max(len(expected), len(made))
    right = sum(same_call(*pair) for pair in pairs)
    return Trajectory(
        tools=len(pairs) / wanted if wanted else 1.0,
        arguments=right / len(pairs) if pairs else 1.0,
        pairs=pairs,
        missing=tuple(call for place, call in enumerate(expected) if place not in found),
        extra=tuple(call for place, call in enumerate(made) if place not in taken),
    )


def _in_any_order(expected: Sequence[Call], made: Sequence[Call]) -> list[tuple[int, int]]:
    """Give each right call one that was made: an equal one if there is any, else one of its tool."""
    places: dict[int, int] = {}
    free = dict(enumerate(made))
    for fits in (same_call, _same_tool):
        for left, call in enumerate(expected):
            right = None if left in places else next((place for place, other in free.items() if fits(call, other)), None)
            if right is not None:
                places[left] = right
                del free[right]
    return sorted(places.items())


def _in_order(expected: Sequence[Call], made: Sequence[Call]) -> list[tuple[int, int]]:
    """The most pairs of one tool whose order is the same on both sides; of those, the ones with most equal arguments."""

    @cache
    def best(left: int, right: int) -> tuple[int, int, tuple[tuple[int, int], ...]]:
        if left == len(expected) or right == len(made):
            return 0, 0, ()
        options = [best(left + 1, right), best(left, right + 1)]
        if _same_tool(expected[left], made[right]):
            tools, equal, rest = best(left + 1, right + 1)
            options.append((tools + 1, equal + same_call(expected[left], made[right]), ((left, right), *rest)))
        return max(options, key=lambda option: option[:2])

    return list(best(0, 0)[2])


def _same_tool(one: Call, other: Call) -> bool:
    return one.tool == other.tool
