"""The policy that workers judge by: read, held against the tools and keys it speaks of, and refused when it is wrong."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from flows.agent import search
from flows.agent.tools import Tool
from flows.approvals.faults import KnownPeople, faults_of
from flows.approvals.policy import ApprovalPolicy, Policy
from flows.approvals.rules import EVERYBODY_ELSE, PolicyRules, parse_policy
from infra.identity.key_sets import parse_key_set
from infra.identity.signatures import TenantTrust
from infra.policy_file import keys_path, read_policy_file
from infra.settings import Settings
from topics.errors import ConfigError
from workers.toolsets import load_toolset

NO_POLICY = "no SLUICE_POLICY_FILE: every tool's own rule applies, and every decision is refused, as nobody's key is known"


@dataclass(frozen=True, slots=True)
class LoadedPolicy:
    """A policy, whom each tenant believes, and what an operator should be told about it."""

    policy: Policy
    trust: Callable[[str], TenantTrust]
    warnings: tuple[str, ...] = ()


def load_policy(settings: Settings) -> LoadedPolicy:
    """Read the policy, and refuse it whole when one part of it is wrong. Without one nobody is believed, signed or not.

    Raises:
        ConfigError: Each mistake in one sentence with its place.
    """
    file = settings.policy_file
    if file is None:
        return LoadedPolicy(ApprovalPolicy(), lambda _tenant: TenantTrust(), (NO_POLICY,))
    policy = parse_policy(read_policy_file(file), source=str(file))
    faults = list(_faults(policy, file, settings))
    if faults:
        raise ConfigError(f"{file}: {'; '.join(faults)}")
    unsigned = sorted(tenant for tenant, rules in policy.file.tenants.items() if rules.unsigned)
    warnings = (f"decisions count without a signature for: {', '.join(unsigned)}",) if unsigned else ()
    return LoadedPolicy(policy, lambda tenant: trust_in(policy, file, tenant), warnings)


def trust_in(policy: PolicyRules, file: Path, tenant: str) -> TenantTrust:
    """Whom a tenant believes, by its policy."""
    keys = policy.keys(tenant)
    return TenantTrust(None if keys is None else keys_path(file, keys), policy.unsigned(tenant))


def _faults(policy: PolicyRules, file: Path, settings: Settings) -> Iterator[str]:
    for tenant, rules in policy.file.tenants.items():
        try:
            people = None if rules.keys is None else _people_in(keys_path(file, rules.keys))
        except ConfigError as error:
            yield f"tenants.{tenant}.keys: {error}"
            continue
        if rules.keys is None and not rules.unsigned:
            yield f"tenants.{tenant}: nobody could decide anything: name a key set, or say unsigned = true"
        yield from faults_of(tenant, rules, _tools_of(tenant, policy, settings), people)


def _people_in(path: Path) -> KnownPeople:
    try:
        keys = parse_key_set(path.read_bytes(), name=str(path)).values()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    roles_of: dict[str, frozenset[str]] = {}
    for key in keys:
        if key.person is not None:
            roles_of[key.person] = roles_of.get(key.person, frozenset()) | key.roles
    return KnownPeople(roles_of, open_ended=any(key.person is None for key in keys))


def _tools_of(tenant: str, policy: PolicyRules, settings: Settings) -> list[Tool]:
    """The tools that calls under a section may name; the section of everybody else has those of every such tenant."""
    if tenant == EVERYBODY_ELSE:
        others = {one for name, one in settings.toolsets.items() if name not in policy.file.tenants}
        names = sorted({settings.toolset, *others})
    else:
        names = [settings.toolset_of(tenant)]
    return [search.TOOL, *(tool for name in names for tool in load_toolset(name).tools)]
