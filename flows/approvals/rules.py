"""The policy file: rules in order for each tenant, the first that fits decides. Pure."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from flows.approvals.conditions import Condition, value_at
from flows.approvals.policy import Allow, Ask, Deny, JudgedTool, Judgement, ToolClass, as_declared
from topics.errors import ConfigError
from topics.events import AtExpiry, Decision, Escalation, OnNewMessage, Terms

EVERYBODY_ELSE: Final = "*"
_STRICT: Final = ConfigDict(frozen=True, extra="forbid", strict=True)


class EscalationRule(BaseModel):
    """Who may decide too, from `after_s` seconds after the request on."""

    model_config = _STRICT

    after_s: int = Field(ge=1)
    people: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _names_somebody(self) -> "EscalationRule":
        if not self.people and not self.roles:
            raise ValueError("an escalation names people or roles")
        return self


class AskRule(BaseModel):
    """Who must say yes, how many, until when, and what happens at the end of the time and when the customer writes again."""

    model_config = _STRICT

    people: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    quorum: int = Field(default=1, ge=1, le=100)
    requester_excluded: bool = True
    allowed_decisions: tuple[Decision, ...] | None = Field(default=None, min_length=1)
    remind_every_s: int | None = Field(default=None, ge=1)
    escalations: tuple[EscalationRule, ...] = ()
    expires_after_s: int | None = Field(default=None, ge=1)
    at_expiry: AtExpiry = "reject"
    on_new_message: OnNewMessage = "hold"

    @model_validator(mode="after")
    def _can_come_true(self) -> "AskRule":
        times = [one.after_s for one in self.escalations]
        if times != sorted(set(times)):
            raise ValueError("escalations go from early to late, each at a time of its own")
        if self.expires_after_s is not None and times and times[-1] >= self.expires_after_s:
            raise ValueError("the last escalation comes after the end of the time")
        if self.quorum > len(self.people_in_all()) > 0 and not self.roles_in_all():
            raise ValueError(f"the quorum is {self.quorum}, and {len(self.people_in_all())} people are named")
        return self

    def people_in_all(self) -> set[str]:
        """Everybody who is named, escalations included."""
        return {*self.people, *(person for one in self.escalations for person in one.people)}

    def roles_in_all(self) -> set[str]:
        """Every role that is named, escalations included."""
        return {*self.roles, *(role for one in self.escalations for role in one.roles)}

    def decisions_on(self, tool: JudgedTool) -> tuple[Decision, ...]:
        """What may be decided: what the tool allows, narrowed by the rule. Rejecting always may."""
        wanted = self.allowed_decisions or tool.allowed_decisions
        return tuple(one for one in tool.allowed_decisions if one in wanted) or ("reject",)

    def terms(self) -> Terms:
        """The rule as it travels in requests."""
        return Terms(
            **self.model_dump(exclude={"allowed_decisions", "escalations"}),
            escalations=tuple(Escalation(**one.model_dump()) for one in self.escalations),
        )


class Rule(BaseModel):
    """Which calls it is for, and one of `allow`, `deny` and `ask`."""

    model_config = _STRICT

    name: str = ""
    tool: str = "*"
    tool_class: ToolClass | None = Field(default=None, alias="class")
    requester: str | None = None
    when: tuple[Condition, ...] = ()
    allow: Literal[True] | None = None
    deny: str | None = Field(default=None, min_length=1)
    ask: AskRule | None = None

    @model_validator(mode="after")
    def _decides_one_thing(self) -> "Rule":
        if sum(one is not None for one in (self.allow, self.deny, self.ask)) != 1:
            raise ValueError("a rule says exactly one of: allow = true, deny = a reason, ask = {...}")
        return self

    def is_for(self, tool: JudgedTool) -> bool:
        """Whether calls of this tool are meant."""
        return fnmatchcase(tool.name, self.tool) and self.tool_class in {None, tool.effect}

    def fits(self, tool: JudgedTool, arguments: Mapping[str, Any], requester: str | None) -> bool:
        """Whether the rule decides this call. What cannot be told is held against the call."""
        if not self.is_for(tool):
            return False
        answers = [condition.holds(arguments) for condition in self.when]
        if self.requester is not None:
            answers.append(None if requester is None else fnmatchcase(requester, self.requester))
        return False not in answers and (None not in answers or self.allow is None)


class TenantRules(BaseModel):
    """The rules of one tenant, its keys, and where its tools' amounts stand (tool -> dotted path, minor units)."""

    model_config = _STRICT

    unsigned: bool = False
    keys: str | None = Field(default=None, min_length=1)
    amounts: dict[str, str] = Field(default_factory=dict)
    rules: tuple[Rule, ...] = ()

    def judge(self, tool: JudgedTool, arguments: Mapping[str, Any], requester: str | None) -> Judgement:
        """Judge one call by the first rule that fits it; without one, by what the tool declares."""
        rule = next((rule for rule in self.rules if rule.fits(tool, arguments, requester)), None)
        amount = self._amount(tool, arguments)
        if rule is None:
            return as_declared(tool, amount)
        if rule.deny is not None:
            return Deny(rule.deny)
        return Allow() if rule.ask is None else Ask(rule.ask.decisions_on(tool), rule.ask.terms(), amount)

    def _amount(self, tool: JudgedTool, arguments: Mapping[str, Any]) -> int | None:
        path = self.amounts.get(tool.name)
        found = value_at(arguments, path) if path else None
        return found if isinstance(found, int) and not isinstance(found, bool) else None

    def version(self) -> str:
        """A short hash of what judgements rest on. Keys are no part of it: a revoked key asks nothing again."""
        content = self.model_dump(mode="json", by_alias=True, exclude_unset=True, include={"amounts", "rules"})
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


class PolicyFile(BaseModel):
    """The whole file. A tenant without a section has that of `*`."""

    model_config = _STRICT

    version: str | None = Field(default=None, min_length=1, max_length=60)
    tenants: dict[str, TenantRules]


@dataclass(frozen=True)
class PolicyRules:
    """A policy file as a policy."""

    file: PolicyFile
    _versions: dict[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Work out the versions once."""
        versions = {tenant: self.file.version or rules.version() for tenant, rules in self.file.tenants.items()}
        object.__setattr__(self, "_versions", versions)

    def rules_of(self, tenant: str) -> TenantRules:
        """The section that a tenant has."""
        return self.file.tenants.get(tenant) or self.file.tenants.get(EVERYBODY_ELSE) or TenantRules()

    def version_of(self, tenant: str) -> str:
        """What the file says, or a hash of the tenant's rules: a change for one tenant asks nobody else again."""
        section = tenant if tenant in self.file.tenants else EVERYBODY_ELSE
        return self._versions.get(section) or self.file.version or TenantRules().version()

    def verdict_on(self, tool: JudgedTool, arguments: dict[str, Any], *, tenant: str, requester: str | None) -> Judgement:
        """Judge one call."""
        return self.rules_of(tenant).judge(tool, arguments, requester)

    def unsigned(self, tenant: str) -> bool:
        """Whether the tenant's decisions count without a signature."""
        return self.rules_of(tenant).unsigned

    def keys(self, tenant: str) -> str | None:
        """The tenant's key set, a path that may be relative to the file."""
        return self.rules_of(tenant).keys


def parse_policy(content: Mapping[str, Any], *, source: str) -> PolicyRules:
    """Read a policy from the file's content.

    Raises:
        ConfigError: One sentence: which place, and what is wrong there.
    """
    try:
        # As JSON, so that lists may be tuples and nothing else is coerced.
        return PolicyRules(PolicyFile.model_validate_json(json.dumps(content, allow_nan=False)))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        raise ConfigError(f"{source}: {_place(first['loc'], content)}: {first['msg'].removeprefix('Value error, ')}") from None
    except (TypeError, ValueError):
        raise ConfigError(f"{source}: dates, times, nan and inf have no place in a policy") from None


def _place(loc: tuple[int | str, ...], content: Mapping[str, Any]) -> str:
    """Where in the file, with a rule's name beside its number; rules are counted from 1."""
    found: Any = content
    place = ""
    for step in loc:
        found = value_at({"": found}, f".{step}")
        if isinstance(step, int):
            name = value_at({"": found}, ".name")
            place += f"[{step + 1}]" + (f" ({name})" if name else "")
        else:
            place += f".{step}" if place else step
    return place or "the file"
