"""How often people edit and reject what an agent proposes, by tool, policy and prompt. Pure, from what the topics tell."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from topics.approval_state import ApprovalState


class Group(NamedTuple):
    """What is counted together. A version is empty where the request does not tell it."""

    tool: str
    policy_version: str
    prompt_version: str


@dataclass(frozen=True, slots=True)
class Rates:
    """What became of the requests of one group. Rates are over what people decided; None where they decided nothing."""

    group: Group
    requests: int
    approved: int
    edited: int
    rejected: int
    responded: int
    expired: int
    withdrawn: int

    @property
    def decided(self) -> int:
        """How many a person decided; the end of a time is nobody's decision."""
        return self.approved + self.edited + self.rejected + self.responded

    @property
    def waiting(self) -> int:
        """How many nobody has decided yet."""
        return self.requests - self.decided - self.expired - self.withdrawn

    @property
    def edit_rate(self) -> float | None:
        """The share of decisions that changed the arguments."""
        return self.edited / self.decided if self.decided else None

    @property
    def reject_rate(self) -> float | None:
        """The share of decisions that said no."""
        return self.rejected / self.decided if self.decided else None


def rates_of(states: Iterable[ApprovalState]) -> tuple[Rates, ...]:
    """Count approvals as they stand, each once. Questions about effects in doubt are no proposals, and are left out."""
    counts: dict[Group, Counter[str]] = {}
    for state in states:
        if state.request.kind == "call":
            group = Group(state.request.tool, state.request.policy_version, state.request.prompt_version)
            counts.setdefault(group, Counter())[_end_of(state)] += 1
    return tuple(_rates(group, counts[group]) for group in sorted(counts))


def _end_of(state: ApprovalState) -> str:
    if state.status != "decided" or state.verdict is None:
        return state.status
    return state.verdict.decision


def _rates(group: Group, counts: Counter[str]) -> Rates:
    return Rates(
        group=group,
        requests=counts.total(),
        approved=counts["approve"],
        edited=counts["edit"],
        rejected=counts["reject"],
        responded=counts["respond"],
        expired=counts["expired"],
        withdrawn=counts["withdrawn"],
    )
