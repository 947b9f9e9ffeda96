"""Who must say yes to a call: (call, tenant, requester, version) -> Allow | Ask | Deny. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from flows.agent.tools import Tool
from topics.events import Decision, Terms

POLICY_VERSION: Final = "1"


@dataclass(frozen=True, slots=True)
class Allow:
    """Nobody needs to be asked."""


@dataclass(frozen=True, slots=True)
class Ask:
    """People decide, under these terms. `amount` is what the call moves, in minor units, where the policy knows."""

    allowed_decisions: tuple[Decision, ...]
    terms: Terms = field(default_factory=Terms)
    amount: int | None = None


@dataclass(frozen=True, slots=True)
class Deny:
    """Never. The reason is shown to the model and to approvers."""

    reason: str


Judgement = Allow | Ask | Deny
Judge = Callable[[Tool, dict[str, Any], str, str | None, str], Judgement]


def judge(tool: Tool, arguments: dict[str, Any], tenant: str, requester: str | None, version: str) -> Judgement:  # noqa: ARG001 the shape of every policy
    """The rule of tenants without one of their own: what the tool declares."""
    return Ask(allowed_decisions=tool.allowed_decisions) if tool.asks else Allow()


@dataclass(frozen=True, slots=True)
class ApprovalPolicy:
    """A judge and the version that approvals are bound to: under another version they no longer count."""

    version: str = POLICY_VERSION
    judge: Judge = judge

    def verdict_on(self, tool: Tool, arguments: dict[str, Any], *, tenant: str, requester: str | None) -> Judgement:
        """Judge one call."""
        return self.judge(tool, arguments, tenant, requester, self.version)


def edit_needs_others(before: Judgement, after: Judgement) -> bool:
    """Whether an edit would need approvers that the original call did not."""
    return isinstance(after, Ask) and isinstance(before, Ask) and after.terms != before.terms
