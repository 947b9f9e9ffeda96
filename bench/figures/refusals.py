"""What the retriever refuses because nothing is near enough: what it should, and what it should not.

Two kinds of questions have no answer: those of a set that nothing in it answers (only TechQA has some), and those of another set,
asked of this one's tenant. The cut is chosen on the half for tuning: the highest that refuses at most 1 in 200 of any set's
answerable questions. The allowance for agreement was fixed having seen all; on that half no answerable question needs it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from bench.figures.judged import Question
from bench.rig import print_table
from flows.retrieval import FusionPolicy, near_enough
from infra.redis.search import Hit

CUTS: Final = (0.30, 0.35, 0.40, 0.45, 0.50)
REFUSED_AT_MOST: Final = 1 / 200
STRANGERS: Final = 60


@dataclass(frozen=True, slots=True)
class Found:
    """What both branches gave for a question."""

    question: Question
    lexical: Sequence[Hit]
    dense: Sequence[Hit]


@dataclass(frozen=True, slots=True)
class Asked:
    """What was found for each set's own questions, and for those of the other sets that were asked of it."""

    own: Mapping[str, Sequence[Found]]
    strangers: Sequence[Found]

    def half(self, *, tunes: bool) -> "Asked":
        """The questions that weights and cuts are chosen on, or the others."""
        own = {name: [one for one in found if one.question.tunes == tunes] for name, found in self.own.items()}
        return Asked(own, [one for one in self.strangers if one.question.tunes == tunes])

    def answerable(self) -> dict[str, Sequence[Found]]:
        """By set, what has an answer there."""
        return {name: [one for one in found if one.question.relevant] for name, found in self.own.items()}

    def impossible(self) -> Sequence[Found]:
        """What nothing in its set answers."""
        return [one for found in self.own.values() for one in found if not one.question.relevant]


def account(asked: Asked, shipped: FusionPolicy) -> dict[str, Any]:
    """Print what each cut refuses on the half for tuning, and what the shipped one does on the other."""
    tuning, reported = asked.half(tunes=True), asked.half(tunes=False)
    rows = [[f"{cut:.2f}", *_row(tuning, replace(shipped, min_similarity=cut))] for cut in CUTS]
    columns = ["cosine", *asked.own, "impossible", "of other sets"]
    print_table("Refused by a cut, on the half for tuning: answerable questions of each set, and what has no answer", columns, rows)
    named = {"as shipped": shipped, "without the allowance": replace(shipped, agreed_allowance=0.0)}
    rows = [[name, *_row(reported, policy)] for name, policy in named.items()]
    print_table("Refused as shipped, on the other half", ["", *columns[1:]], rows)
    refused = _refused_by(shipped)
    figures: dict[str, Any] = {"refusal_cut": shipped.min_similarity, "refusal_cut_on_tuning_half": _choose(tuning, shipped)}
    for name, found in reported.answerable().items():
        figures |= {f"{name}_answerable": len(found), f"{name}_wrongly_refused": refused(found)}
    without = {"impossible": reported.impossible(), "strangers": reported.strangers}
    for name, found in without.items():
        figures |= {name: len(found), f"{name}_refused": refused(found)}
    return figures


def _choose(tuning: Asked, shipped: FusionPolicy) -> float:
    return max((cut for cut in CUTS if _costs_little(tuning, replace(shipped, min_similarity=cut))), default=0.0)


def _costs_little(asked: Asked, policy: FusionPolicy) -> bool:
    refused = _refused_by(policy)
    return all(refused(found) <= REFUSED_AT_MOST * len(found) for found in asked.answerable().values())


def _row(asked: Asked, policy: FusionPolicy) -> list[str]:
    refused = _refused_by(policy)
    groups = [*asked.answerable().values(), asked.impossible(), asked.strangers]
    return [f"{refused(found)} of {len(found)}" for found in groups]


def _refused_by(policy: FusionPolicy) -> Callable[[Sequence[Found]], int]:
    return lambda found: sum(not near_enough(one.lexical, one.dense, policy) for one in found)
