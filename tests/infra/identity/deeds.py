"""Keys, tenants and decisions that the tests of identity share."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from joserfc import jws
from joserfc.jwk import ECKey

from infra.identity.signatures import JwsVerifier, TenantTrust
from infra.identity.signing import ApproverKey, new_key
from topics.events import ApprovalDecided

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
DECIDED = ApprovalDecided(
    approval_id="a1", thread_id="T-17", decision="approve", args_digest="ab" * 32, approver="mia", tool="refund"
)  # fmt: skip


class Now:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.at = NOW

    def now(self) -> datetime:
        return self.at

    def wait(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


def key_set(folder: Path, keys: Sequence[ApproverKey | dict[str, Any]], *, name: str = "acme.jwks.json") -> Path:
    entries = [key.entry if isinstance(key, ApproverKey) else key for key in keys]
    (folder / name).write_text(json.dumps({"keys": entries}))
    return folder / name


def issuer_entry(key: ApproverKey) -> dict[str, Any]:
    return {name: value for name, value in key.entry.items() if name not in {"person", "roles"}} | {"issuer": True}


def verifier(clock: Now | None = None, /, **trust: TenantTrust) -> JwsVerifier:
    return JwsVerifier(lambda tenant: trust.get(tenant, TenantTrust()), clock or Now())


def signed(key: ApproverKey, decided: ApprovalDecided = DECIDED, *, tenant: str = "acme", tool: str = "refund") -> ApprovalDecided:
    return key.sign(decided, tenant=tenant, tool=tool, now=NOW)


def claims_of(decided: ApprovalDecided) -> dict[str, Any]:
    token = jws.extract_compact((decided.signature or "").encode())
    return json.loads(token.payload)


def with_claims(key: ApproverKey, decided: ApprovalDecided, **changes: Any) -> ApprovalDecided:
    """The decision signed anew, with claims changed, or left out where they are None."""
    claims = {name: value for name, value in {**claims_of(decided), **changes}.items() if value is not None}
    return decided.model_copy(update={"signature": key.token(claims)})


def mia() -> ApproverKey:
    return new_key("mia", ("refunds",), key_id="mia-1")


def ec_entry(person: str = "ann") -> tuple[ECKey, dict[str, Any]]:
    key = ECKey.generate_key("P-256")
    return key, {**key.as_dict(private=False), "kid": f"{person}-ec", "person": person, "roles": ["refunds"]}
