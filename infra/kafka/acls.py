"""Who may do what on the cluster, from the catalogue: Kafka ACLs for each role, as data and as `kafka-acls` commands. Pure.

The worker that carries out decisions cannot write one: only approvers have `approvals.decisions`.
"""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from topics.catalogue import OUTCOMES, Catalogue, TopicSpec

Resource = Literal["topic", "group"]
Pattern = Literal["literal", "prefixed"]

OPERATOR: Final = "operator"


@dataclass(frozen=True, slots=True)
class Acl:
    """Allow a role some operations on a topic or a group. Whatever is not allowed is denied, once the broker has an authorizer."""

    role: str
    resource: Resource
    name: str
    operations: tuple[str, ...]
    pattern: Pattern = "literal"


def acls(catalogue: Catalogue, *, readers: Mapping[str, Sequence[TopicSpec]], group_prefix: str) -> list[Acl]:
    """Everything that each role needs, and nothing else.

    Args:
        readers: Worker -> the inputs that it handles; it reads their replay topics too.
        group_prefix: What goes before the name of a worker in its consumer group.
    """
    found: list[Acl] = []
    for worker, inputs in readers.items():
        names = [name for spec in inputs for name in (catalogue.name(spec), catalogue.replay_name(spec))]
        found += [Acl(worker, "topic", name, ("Read", "Describe")) for name in names]
        found.append(Acl(worker, "group", f"{group_prefix}.{worker}", ("Read", "Describe")))
    for topic, spec in catalogue.all_names().items():
        writers = (OPERATOR,) if catalogue.is_replay(topic) else spec.writers
        found += [Acl(writer, "topic", topic, ("Write", "Describe")) for writer in writers]
        if spec.direction == "out":
            found += [Acl(reader, "topic", topic, ("Read", "Describe")) for reader in _hears(spec)]
        found.append(Acl(OPERATOR, "topic", topic, ("Read", "Describe", "Create", "Alter", "DescribeConfigs", "AlterConfigs")))
    found.append(Acl(OPERATOR, "group", f"{group_prefix}.", ("Read", "Describe"), "prefixed"))
    return _merged(found)


def _hears(spec: TopicSpec) -> tuple[str, ...]:
    if spec is OUTCOMES:
        return ("upstream", "approver", *spec.writers)  # a worker whose Redis lost the chain learns it from here
    return ("upstream", "approver") if spec.name.startswith("approvals.") else ("upstream",)


def _merged(found: Iterable[Acl]) -> list[Acl]:
    """One entry for a role and a resource, in order of roles."""
    together: dict[tuple[str, Resource, str, Pattern], dict[str, None]] = {}
    for one in found:
        together.setdefault((one.role, one.resource, one.name, one.pattern), {}).update(dict.fromkeys(one.operations))
    entries = (Acl(role, kind, name, tuple(operations), pattern) for (role, kind, name, pattern), operations in together.items())
    return sorted(entries, key=lambda one: (one.role, one.resource, one.name))


def arguments(acl: Acl, *, bootstrap: str, principal: str) -> list[str]:
    """What `kafka-acls` is given to add an entry."""
    operations = [word for operation in acl.operations for word in ("--operation", operation)]
    pattern = ["--resource-pattern-type", acl.pattern] if acl.pattern != "literal" else []
    who = ["--add", "--allow-principal", principal]
    return ["--bootstrap-server", bootstrap, *who, *operations, f"--{acl.resource}", acl.name, *pattern]


def command(acl: Acl, *, bootstrap: str, principal: str) -> str:
    """The same as a line for a shell."""
    return shlex.join(["kafka-acls", *arguments(acl, bootstrap=bootstrap, principal=principal)])
