"""A verifier that believes what a decision says of itself."""

from dataclasses import dataclass, field

from topics.errors import ForgedError
from topics.events import ApprovalDecided


@dataclass(frozen=True)
class Person:
    person: str
    roles: frozenset[str] = frozenset()
    key_id: str | None = None
    token_id: str | None = None


@dataclass
class TrustingVerifier:
    """The approver is who they say. `roles` gives them some, each has a key of their own, and `forged` names who is refused."""

    roles: dict[str, set[str]] = field(default_factory=dict)
    revoked: set[str] = field(default_factory=set)
    forged: dict[str, str] = field(default_factory=dict)
    verified: int = 0

    def verify(self, tenant: str, decided: ApprovalDecided, *, tool: str) -> Person:
        del tenant, tool
        self.verified += 1
        name = decided.approver
        if name in self.forged:
            raise ForgedError(self.forged[name])
        key_id = f"{name}-key" if name in self.roles else None
        return Person(name, frozenset(self.roles.get(name, ())), key_id, decided.signature)

    def stands(self, tenant: str, key_id: str | None) -> bool:
        del tenant
        return key_id not in self.revoked
