"""Who decides on the command line: a key's person, a token from elsewhere, or the login name where unsigned words count."""

import getpass
from dataclasses import dataclass
from pathlib import Path

from flows.approvals.rules import parse_policy
from infra.clock import SystemClock
from infra.identity.signing import ApproverKey, read_private
from infra.policy_file import read_policy_file
from infra.settings import Settings
from topics.errors import ConfigError
from topics.events import ApprovalDecided


@dataclass(frozen=True, slots=True)
class Approver:
    """Signs decisions with a key, or carries a signature that was made elsewhere, or has nothing to show."""

    name: str
    key: ApproverKey | None = None
    token: str | None = None

    @property
    def is_unsigned(self) -> bool:
        """Whether their word has nothing behind it."""
        return self.key is None and self.token is None

    def signed(self, decided: ApprovalDecided, *, tenant: str, tool: str) -> ApprovalDecided:
        """The decision with what this person can show for it."""
        if self.token is not None:
            return decided.model_copy(update={"signature": self.token})
        return decided if self.key is None else self.key.sign(decided, tenant=tenant, tool=tool, now=SystemClock().now())


def approver_of(settings: Settings, *, tenant: str, key_file: Path | None, token: str | None) -> Approver:
    """Who decides for a tenant: `--token`, then `--key`, then SLUICE_APPROVER_KEY, then nobody in particular.

    Raises:
        ConfigError: The key cannot be used, or there is none and the tenant's policy takes signed decisions only.
    """
    if token is not None:
        return Approver(getpass.getuser(), token=token)
    file = key_file or settings.approver_key
    if file is not None:
        key = read_private(file)
        if key.public.person is None:
            raise ConfigError(f"{file} is an issuer's key: whoever decides has a key of their own, or a --token from the issuer")
        return Approver(key.person, key)
    if settings.policy_file is not None:
        policy = parse_policy(read_policy_file(settings.policy_file), source=str(settings.policy_file))
        if not policy.unsigned(tenant):
            raise ConfigError(f"{tenant} takes signed decisions only: give --key, or set SLUICE_APPROVER_KEY (`approvals keygen`)")
    return Approver(getpass.getuser())
