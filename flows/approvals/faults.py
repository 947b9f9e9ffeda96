"""What is wrong with a policy beside a tenant's tools and keys, though each rule by itself is well written. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol

from flows.approvals.policy import JudgedTool
from flows.approvals.rules import AskRule, Rule, TenantRules


class KnownTool(JudgedTool, Protocol):
    """A tool and the names of its arguments."""

    @property
    def argument_names(self) -> Sequence[str]:
        """As a call spells them."""
        ...


@dataclass(frozen=True, slots=True)
class KnownPeople:
    """Whom a tenant's key set names, with their roles. `open_ended`: it has an issuer, whose tokens may name anybody."""

    roles_of: Mapping[str, frozenset[str]]
    open_ended: bool = False

    def able(self, ask: AskRule) -> set[str]:
        """Who could ever say yes under a rule."""
        people, roles = ask.people_in_all(), ask.roles_in_all()
        if not people and not roles:
            return set(self.roles_of)
        return {person for person, own in self.roles_of.items() if person in people or own & roles}


def faults_of(tenant: str, rules: TenantRules, tools: Sequence[KnownTool], people: KnownPeople | None = None) -> list[str]:
    """Every mistake of one section, a sentence each.

    Args:
        tenant: The section's name, for the sentences.
        rules: The section.
        tools: All tools that tenants of this section have.
        people: Whom the key set names; None when the section has no key set.
    """
    found = [*_amount_faults(rules, tools), *_rule_faults(rules, tools), *_people_faults(rules, people)]
    return [f"tenants.{tenant}: {fault}" for fault in found]


def _amount_faults(rules: TenantRules, tools: Sequence[KnownTool]) -> Iterator[str]:
    names = {tool.name: tool for tool in tools}
    for name, path in rules.amounts.items():
        if name not in names:
            yield f"amounts: there is no tool {name}"
        elif path.split(".")[0] not in names[name].argument_names:
            yield f"amounts: {name} has no argument {path.split('.')[0]}"


def _rule_faults(rules: TenantRules, tools: Sequence[KnownTool]) -> Iterator[str]:
    for number, rule in enumerate(rules.rules, 1):
        where = f"rule {number}" + (f" ({rule.name})" if rule.name else "")
        meant = [tool for tool in tools if rule.is_for(tool)]
        if not any(fnmatchcase(tool.name, rule.tool) for tool in tools):
            yield f"{where}: there is no tool {rule.tool}"
        elif not meant:
            yield f"{where}: no tool {rule.tool} is {rule.tool_class}"
        elif all(_is_taken(rule, tool, rules.rules[: number - 1]) for tool in meant):
            yield f"{where} is never reached: rules before it decide all its calls"
        yield from (f"{where}: {fault}" for fault in _faults_with_tools(rule, meant))


def _faults_with_tools(rule: Rule, meant: Sequence[KnownTool]) -> Iterator[str]:
    for condition in rule.when:
        if meant and not any(condition.argument in tool.argument_names for tool in meant):
            yield f"none of its tools has an argument {condition.argument}"
    for tool in meant:
        if rule.allow and tool.effect == "IRREVERSIBLE" and rule.tool != tool.name and rule.tool_class != "IRREVERSIBLE":
            # By accident, a pattern would let through what can never be taken back.
            yield f"it would allow {tool.name}, which is IRREVERSIBLE, without naming the tool or the class"
        wanted = rule.ask.allowed_decisions if rule.ask else None
        if wanted and not set(wanted) & set(tool.allowed_decisions):
            yield f"{tool.name} allows none of its allowed_decisions"


def _people_faults(rules: TenantRules, people: KnownPeople | None) -> Iterator[str]:
    for number, rule in enumerate(rules.rules, 1):
        ask, where = rule.ask, f"rule {number}" + (f" ({rule.name})" if rule.name else "")
        if ask is None:
            continue
        if people is None:
            if ask.roles_in_all():
                yield f"{where}: roles can only be shown with keys, and the section names no key set"
            continue
        if people.open_ended:
            continue
        known_roles = {role for roles in people.roles_of.values() for role in roles}
        yield from (f"{where}: no key is {person}'s" for person in sorted(ask.people_in_all() - set(people.roles_of)))
        yield from (f"{where}: no key has the role {role}" for role in sorted(ask.roles_in_all() - known_roles))
        if ask.quorum > len(people.able(ask)):
            yield f"{where}: the quorum is {ask.quorum}, and {len(people.able(ask))} people with keys could say yes"


def _is_taken(rule: Rule, tool: JudgedTool, earlier: Sequence[Rule]) -> bool:
    """Whether a rule before decides every call of a tool that this one would."""
    return any(_covers(other, rule) for other in earlier if other.is_for(tool))


def _covers(other: Rule, rule: Rule) -> bool:
    if other.requester not in {None, rule.requester} or not set(other.when) <= set(rule.when):
        return False
    # Where a condition cannot be told, a rule that allows steps back, and the later one gets the call after all.
    return other.allow is None or rule.allow is not None or not (other.when or other.requester)
