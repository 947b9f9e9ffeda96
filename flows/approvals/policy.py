"""Who must say yes to a call: (call, tenant, requester) -> Allow | Ask | Deny. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from topics.events import Decision, Terms

POLICY_VERSION: Final = "1"
ToolClass = Literal["READ", "WRITE", "IRREVERSIBLE"]


class JudgedTool(Protocol):
    """What a policy knows of a tool: its name, its class, and what it declares about being asked."""

    @property
    def name(self) -> str:
        """Unique among the tenant's tools."""
        ...

    @property
    def effect(self) -> ToolClass:
        """What running it can do."""
        ...

    @property
    def asks(self) -> bool:
        """Whether it asks where no rule says anything."""
        ...

    @property
    def allowed_decisions(self) -> tuple[Decision, ...]:
        """What may be decided about its calls at most."""
        ...


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
Judge = Callable[[JudgedTool, dict[str, Any], str, str | None], Judgement]


class Policy(Protocol):
    """Judges calls. What was decided under one version of it does not count under another."""

    def version_of(self, tenant: str) -> str:
        """The version of the tenant's rules; part of every digest."""
        ...

    def verdict_on(self, tool: JudgedTool, arguments: dict[str, Any], *, tenant: str, requester: str | None) -> Judgement:
        """Judge one call, with arguments as they would run."""
        ...


def as_declared(tool: JudgedTool, amount: int | None = None) -> Judgement:
    """The judgement where no rule says anything: what the tool declares."""
    return Ask(tool.allowed_decisions, amount=amount) if tool.asks else Allow()


def judge(tool: JudgedTool, arguments: dict[str, Any], tenant: str, requester: str | None) -> Judgement:  # noqa: ARG001 the shape of every judge
    """The judge of tenants without rules of their own."""
    return as_declared(tool)


@dataclass(frozen=True, slots=True)
class ApprovalPolicy:
    """One judge and one version for all tenants; unless told otherwise, what each tool declares."""

    version: str = POLICY_VERSION
    judge: Judge = judge

    def version_of(self, tenant: str) -> str:  # noqa: ARG002 the port's shape
        """The one version."""
        return self.version

    def verdict_on(self, tool: JudgedTool, arguments: dict[str, Any], *, tenant: str, requester: str | None) -> Judgement:
        """Judge one call."""
        return self.judge(tool, arguments, tenant, requester)
